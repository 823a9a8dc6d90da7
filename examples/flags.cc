#include "examples/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cxxopts.hpp>

namespace halftone {
namespace {

template <class T>
bool parse_whole(const std::string& text, T& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [last, error] = std::from_chars(begin, end, value);
  return error == std::errc() && last == end;
}

std::string limits(const Flag& flag) {
  const bool has_low = std::isfinite(flag.low);
  const bool has_high = std::isfinite(flag.high);
  std::string text;
  if (has_low) {
    text = concat(" of at least ", shortest(flag.low));
  }
  if (has_high) {
    text += concat(
        has_low ? " and " : " of ", flag.below_high ? "below " : "at most ", shortest(flag.high));
  }
  return text;
}

bool is_within(const Flag& flag, double x) {
  return flag.low <= x && (flag.below_high ? x < flag.high : x <= flag.high);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

std::string text_of(const JsonValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return *text;
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return std::to_string(*number);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return shortest(*number);
  }
  return std::get<bool>(value) ? "on" : "off";
}

}  // namespace

Flags::Flags(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {
  add({.name = "help",
       .kind = Flag::Kind::present,
       .help = "print this text",
       .scope = Flag::Scope::process});
}

void Flags::add(Flag flag) {
  if (flag.kind == Flag::Kind::present) {
    flag.default_value = "off";
  }
  Entry entry{std::move(flag), {}, false};
  entry.values = {entry.flag.default_value};
  entries_.push_back(std::move(entry));
}

bool Flags::is_declared(std::string_view name) const {
  return std::any_of(
      entries_.begin(), entries_.end(), [&](const Entry& e) { return e.flag.name == name; });
}

const Flags::Entry& Flags::find(std::string_view name) const {
  const auto at = std::find_if(
      entries_.begin(), entries_.end(), [&](const Entry& e) { return e.flag.name == name; });
  if (at == entries_.end()) {
    throw std::logic_error(concat("flags: no flag '", name, "'"));
  }
  return *at;
}

Flags::Entry& Flags::find(std::string_view name) {
  return const_cast<Entry&>(std::as_const(*this).find(name));
}

std::string Flags::canonical(const Flag& flag, const std::string& value) {
  const auto refuse = [&](const auto&... expected) {
    throw_usage("--", flag.name, ": '", value, "' is not ", expected...);
  };
  switch (flag.kind) {
    case Flag::Kind::integer: {
      int64_t x = 0;
      if (!parse_whole(value, x) || !is_within(flag, static_cast<double>(x))) {
        refuse("a whole number", limits(flag));
      }
      return std::to_string(x);
    }
    case Flag::Kind::real: {
      double x = 0.0;
      if (!parse_whole(value, x) || !std::isfinite(x) || !is_within(flag, x)) {
        refuse("a number", limits(flag));
      }
      if (std::isinf(static_cast<float>(x))) {
        refuse("a number that FP32 holds");
      }
      return shortest(x);
    }
    case Flag::Kind::choice:
    case Flag::Kind::present: {
      const std::vector<std::string> choices =
          flag.kind == Flag::Kind::present ? std::vector<std::string>{"on", "off"} : flag.choices;
      if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
        std::string list;
        for (const std::string& choice : choices) {
          list += concat(list.empty() ? "" : " or ", choice);
        }
        refuse(list);
      }
      return value;
    }
    case Flag::Kind::text: {
      if (value.empty() || value.starts_with("--")) {
        throw_usage("--", flag.name, " needs a value");
      }
      if (!flag.canonical) {
        return value;
      }
      try {
        return flag.canonical(value);
      } catch (const std::invalid_argument& error) {
        throw_usage("--", flag.name, ": ", error.what());
      }
    }
  }
  throw std::logic_error("flags: not a Flag::Kind");
}

std::string Flags::closest(std::string_view name) const {
  std::string best;
  size_t best_distance = 3;  // farther away it is no misspelling
  for (const Entry& entry : entries_) {
    const size_t distance = edit_distance(name, entry.flag.name);
    if (distance < best_distance) {
      best = entry.flag.name;
      best_distance = distance;
    }
  }
  return best;
}

void Flags::parse(int argc, const char* const* argv) {
  cxxopts::Options options(program_, description_);
  for (const Entry& entry : entries_) {
    // Everything is a string: cxxopts would split lists at commas, and knows no limits.
    auto value = cxxopts::value<std::string>();
    if (entry.flag.kind == Flag::Kind::present) {
      value->implicit_value("on");
    }
    options.add_options()(entry.flag.name, entry.flag.help, value);
  }
  try {
    const cxxopts::ParseResult result = options.parse(argc, argv);
    if (!result.unmatched().empty()) {
      throw_usage(
          "unexpected word '",
          result.unmatched().front(),
          "': a flag's value stands right behind it, and a flag without a value takes none");
    }
    for (const cxxopts::KeyValue& argument : result.arguments()) {
      Entry& entry = find(argument.key());
      const std::string value = canonical(entry.flag, argument.value());
      if (entry.given && !entry.flag.repeats) {
        throw_usage("--", entry.flag.name, " is given twice");
      }
      if (!entry.given) {
        entry.values.clear();
      }
      entry.values.push_back(value);
      entry.given = true;
    }
  } catch (const cxxopts::exceptions::no_such_option& error) {
    for (int i = 1; i < argc; ++i) {  // the message quotes the name; find it among ours
      const std::string_view word = argv[i];
      const std::string name(word.substr(0, word.find('=')));
      const bool is_flag = name.starts_with("--") && name.size() > 2;
      if (is_flag && !is_declared(name.substr(2))) {
        const std::string near = closest(name.substr(2));
        throw_usage(
            "unknown option ", name, near.empty() ? "" : concat("; did you mean --", near, "?"));
      }
    }
    throw UsageError(error.what());
  } catch (const cxxopts::exceptions::exception& error) {
    throw UsageError(error.what());
  }
}

int64_t Flags::integer(std::string_view name) const {
  int64_t x = 0;
  if (!parse_whole(text(name), x)) {
    throw std::logic_error(concat("flags: --", name, " has no whole number"));
  }
  return x;
}

double Flags::real(std::string_view name) const {
  double x = 0.0;
  if (!parse_whole(text(name), x)) {
    throw std::logic_error(concat("flags: --", name, " has no number"));
  }
  return x;
}

void Flags::set(std::string_view name, const std::string& value) {
  Entry& entry = find(name);
  entry.values = {canonical(entry.flag, value)};
}

void Flags::store(JsonObject& config) const {
  for (const Entry& entry : entries_) {
    const std::string& value = entry.values.back();
    if (entry.flag.scope == Flag::Scope::process || value.empty()) {
      continue;
    }
    if (entry.flag.kind == Flag::Kind::integer) {
      config.add(entry.flag.name, integer(entry.flag.name));
    } else if (entry.flag.kind == Flag::Kind::real) {
      config.add(entry.flag.name, real(entry.flag.name));
    } else if (entry.flag.kind == Flag::Kind::present) {
      config.add(entry.flag.name, value == "on");
    } else {
      config.add(entry.flag.name, std::string_view(value));
    }
  }
}

void Flags::take_stored(const std::vector<std::pair<std::string, JsonValue>>& fields,
                        const std::string& source) {
  for (const auto& [name, field] : fields) {
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return e.flag.name == name && e.flag.scope != Flag::Scope::process;
    });
    if (at == entries_.end()) {
      continue;
    }
    const std::string stored = canonical(at->flag, text_of(field));
    const bool is_adjusted = at->given && at->flag.scope == Flag::Scope::adjustable;
    if (at->given && !is_adjusted && at->values != std::vector{stored}) {
      throw_usage("--",
                  name,
                  " ",
                  at->values.back(),
                  " contradicts ",
                  source,
                  ", which was made with ",
                  stored,
                  "; leave the flag out to go on with it");
    }
    if (!is_adjusted) {
      at->values = {stored};
    }
  }
}

std::string Flags::help() const {
  std::string text = concat(program_, ": ", description_, "\n\n");
  for (const Entry& entry : entries_) {
    const Flag& flag = entry.flag;
    std::string head = concat("  --", flag.name);
    if (flag.kind == Flag::Kind::integer) {
      head += " N";
    } else if (flag.kind == Flag::Kind::real) {
      head += " X";
    } else if (flag.kind == Flag::Kind::text) {
      head += " TEXT";
    } else if (flag.kind == Flag::Kind::choice) {
      head += " ";
      for (const std::string& choice : flag.choices) {
        head += concat(head.back() == ' ' ? "" : "|", choice);
      }
    }
    head.resize(std::max<size_t>(head.size() + 2, 34), ' ');
    text += head + flag.help;
    if (!flag.default_value.empty() && flag.kind != Flag::Kind::present) {
      text += concat(" (", flag.default_value, ")");
    }
    text += '\n';
  }
  return text;
}

}  // namespace halftone
