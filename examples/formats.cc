// formats: how a number is stored in a number format, and what rounding did to it.
//   formats --to FORMAT [--round nearest|zero|stochastic] [--seed N] [--overflow
//   default|saturate|ieee] [--json] [VALUE...]
// prints for each value: input, code, stored value, absolute error. Decimals are rounded once, from
// the text: they are read into a double rounded to odd, which keeps on which side of a tie of the
// narrower format the text lies (Boldo & Melquiond). Exit status: 0 done, 2 the command line is
// wrong, 1 anything else.
#include <bit>
#include <cctype>
#include <cfenv>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cxxopts.hpp>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/formats.h"
#include "core/philox.h"
#include "data/files.h"

namespace {

using namespace halftone;

struct Settings {
  Format format = kFp32;
  Rounding rounding = Rounding::nearest;
  Overflow overflow = Overflow::standard;
  RandomStream draws = {};
  bool json = false;
};

bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && !std::isspace(static_cast<unsigned char>(text[0])) && *end == '\0';
}

// The text's value rounded to odd: toward zero, and the last bit set if that lost anything.
double parse_to_odd(const std::string& text) {
  std::fesetround(FE_TOWARDZERO);
  std::feclearexcept(FE_INEXACT);
  const double truncated = std::strtod(text.c_str(), nullptr);
  const bool exact = std::fetestexcept(FE_INEXACT) == 0;
  std::fesetround(FE_TONEAREST);
  return exact ? truncated : std::bit_cast<double>(std::bit_cast<uint64_t>(truncated) | 1);
}

// The fewest digits that read back as x.
std::string shortest(double x) {
  if (!std::isfinite(x)) {
    return std::isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
  }
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}

std::string json_number(double x) {
  return std::isfinite(x) ? shortest(x) : concat('"', shortest(x), '"');
}

void check_storable(const Format& format, const std::string& text) {
  HALFTONE_CHECK(is_number(text),
                 "'",
                 excerpt(text),
                 "' is not a number; expected a decimal, 0x1.8p3, nan, inf or -inf");
  const double x = parse_to_odd(text);
  HALFTONE_CHECK(
      !std::isnan(x) || format.has_nan(), "'", text, "': ", to_string(format), " has no NaN");
  HALFTONE_CHECK(
      !(x < 0) || format.has_sign(), "'", text, "': ", to_string(format), " has no sign");
}

void print_stored(const Settings& settings, const std::string& text, uint64_t index) {
  const Format& f = settings.format;
  const double x = parse_to_odd(text);
  const uint32_t draw = settings.rounding == Rounding::stochastic ? settings.draws.draw(index) : 0;
  const uint32_t code = encode(f, x, settings.rounding, settings.overflow, draw);
  const double value = decode_double(f, code);
  // In long double, so that the error of a decimal is not the error of its double.
  const long double error = value == x ? 0 : std::fabs(value - std::strtold(text.c_str(), nullptr));
  std::ostringstream hex;
  hex << "0x" << std::hex << std::setfill('0') << std::setw((f.bits() + 3) / 4) << code;
  if (settings.json) {
    std::cout << "{\"input\":\"" << text << "\",\"code\":\"" << hex.str()
              << "\",\"value\":" << json_number(value)
              << ",\"error\":" << json_number(static_cast<double>(error)) << "}\n";
  } else {
    std::cout << text << ' ' << hex.str() << ' ' << shortest(value) << ' '
              << shortest(static_cast<double>(error)) << '\n';
  }
}

void print_list(bool json) {
  if (!json) {
    std::cout << std::left << std::setw(8) << "format" << std::setw(6) << "bits" << std::setw(24)
              << "max" << std::setw(25) << "min_normal" << std::setw(25) << "min_subnormal"
              << std::setw(24) << "epsilon"
              << "specials\n";
  }
  for (const auto& [name, f] : named_formats()) {
    const std::string specials = f.has_infinity() ? "infinity, NaN"
                                 : !f.has_sign()  ? "NaN, neither sign nor zero"
                                 : f.has_nan()    ? "NaN"
                                                  : "none";
    if (json) {
      std::cout << "{\"format\":\"" << name << "\",\"bits\":" << f.bits()
                << ",\"max\":" << shortest(f.max_finite())
                << ",\"min_normal\":" << shortest(f.min_normal())
                << ",\"min_subnormal\":" << shortest(f.min_subnormal())
                << ",\"epsilon\":" << shortest(f.epsilon()) << ",\"specials\":\"" << specials
                << "\"}\n";
    } else {
      std::cout << std::setw(8) << name << std::setw(6) << f.bits() << std::setw(24)
                << shortest(f.max_finite()) << std::setw(25) << shortest(f.min_normal())
                << std::setw(25) << shortest(f.min_subnormal()) << std::setw(24)
                << shortest(f.epsilon()) << specials << '\n';
    }
  }
  if (!json) {
    std::cout << "Also e<E>m<M> (top code NaN, no infinity) and e<E>m<M>i (as IEEE 754), E 1 to 8, "
                 "M 0 to 23.\n";
  }
}

// What cxxopts gets, and the values: it would take -448 for an option and split values at commas.
struct Arguments {
  std::vector<const char*> options;
  std::vector<std::string> values;
};

Arguments split_arguments(int argc, char** argv) {
  Arguments arguments{{argv[0]}, {}};
  bool only_values = false, wants_value = false;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (!only_values && text == "--") {
      only_values = true;
    } else if (!only_values && (wants_value || (text.starts_with('-') && !is_number(text)))) {
      wants_value = !wants_value && (text == "--to" || text == "--round" || text == "--seed" ||
                                     text == "--overflow");
      arguments.options.push_back(argv[i]);
    } else {
      arguments.values.push_back(text);
    }
  }
  return arguments;
}

template <class T>
T choose(const std::string& option,
         const std::string& text,
         std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) {
      return value;
    }
    names += concat(names.empty() ? "" : ", ", name);
  }
  throw std::invalid_argument(concat("--", option, " '", text, "': expected one of ", names));
}

// Values from standard input, one a line; empty lines are skipped.
void convert_lines(const Settings& settings) {
  uint64_t line_number = 0, index = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++line_number;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) {
      continue;
    }
    const std::string text = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    try {
      check_storable(settings.format, text);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(concat("standard input, line ", line_number, ": ", error.what()));
    }
    print_stored(settings, text, index++);
  }
}

int run(int argc, char** argv) {
  const Arguments arguments = split_arguments(argc, argv);
  cxxopts::Options options("formats",
                           "How a number is stored in each format, and what rounding did to it.\n");
  options.custom_help(
      "--to FORMAT [options] [VALUE...]   (without VALUE: one a line from standard input)\n  "
      "formats --list");
  options.add_options()("to",
                        "number format: a name of --list, e<E>m<M> or e<E>m<M>i",
                        cxxopts::value<std::string>(),
                        "FORMAT")("round",
                                  "nearest, zero or stochastic",
                                  cxxopts::value<std::string>()->default_value("nearest"),
                                  "MODE")(
      "seed", "seed of stochastic rounding", cxxopts::value<uint64_t>()->default_value("1"), "N")(
      "overflow",
      "default, saturate or ieee",
      cxxopts::value<std::string>()->default_value("default"),
      "MODE")("json", "one JSON object a line")(
      "list", "range, epsilon and specials of every format")("h,help", "this text");
  for (const char* text :
       arguments.options) {  // cxxopts would read --json=false as false, --json=no not at all
    for (const std::string flag : {"--json", "--list", "--help"}) {
      HALFTONE_CHECK(!std::string(text).starts_with(flag + "="), flag, " takes no value");
    }
  }
  const auto parsed =
      options.parse(static_cast<int>(arguments.options.size()), arguments.options.data());
  if (parsed.count("help") > 0) {
    std::cout << options.help();
    return 0;
  }
  if (parsed.count("list") > 0) {
    HALFTONE_CHECK(parsed.count("to") == 0 && arguments.values.empty(),
                   "--list stands alone or with --json");
    print_list(parsed.count("json") > 0);
    return 0;
  }
  HALFTONE_CHECK(parsed.count("to") > 0, "--to FORMAT is missing (or ask for --list)");
  Settings settings;
  settings.format = parse_format(parsed["to"].as<std::string>());
  settings.rounding = choose<Rounding>("round",
                                       parsed["round"].as<std::string>(),
                                       {{"nearest", Rounding::nearest},
                                        {"zero", Rounding::zero},
                                        {"stochastic", Rounding::stochastic}});
  settings.overflow = choose<Overflow>("overflow",
                                       parsed["overflow"].as<std::string>(),
                                       {{"default", Overflow::standard},
                                        {"saturate", Overflow::saturate},
                                        {"ieee", Overflow::ieee}});
  settings.draws.key = philox_key(parsed["seed"].as<uint64_t>(), "formats");
  settings.json = parsed.count("json") > 0;
  check_overflow("--overflow", settings.format, settings.overflow);
  for (const std::string& text : arguments.values) {
    check_storable(settings.format, text);
  }
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    print_stored(settings, arguments.values[i], i);
  }
  if (arguments.values.empty()) {
    convert_lines(settings);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    if (!std::cout.flush()) {
      throw std::runtime_error("cannot write to standard output");
    }
    return status;
  } catch (const cxxopts::exceptions::exception& error) {
    std::cerr << "formats: " << error.what() << "; see formats --help\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "formats: " << error.what() << "; see formats --help\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "formats: " << error.what() << '\n';
    return 1;
  }
}
