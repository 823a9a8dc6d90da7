#include "core/formats.h"

#include "core/check.h"

namespace halftone {
namespace {

// The number at the front of text, at most two digits and without a leading zero; -1 if there is
// none. Removes it.
int take_number(std::string_view& text) {
  size_t length = 0;
  int value = 0;
  while (length < 2 && length < text.size() && text[length] >= '0' && text[length] <= '9') {
    value = 10 * value + (text[length] - '0');
    ++length;
  }
  if (length == 0 || (length == 2 && text[0] == '0')) {
    return -1;
  }
  text.remove_prefix(length);
  return value;
}

bool take(std::string_view& text, char letter) {
  if (!text.starts_with(letter)) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

}  // namespace

const std::vector<NamedFormat>& named_formats() {
  static const std::vector<NamedFormat> kFormats = {
      {"fp32", kFp32},
      {"tf32", kTf32},
      {"bf16", kBf16},
      {"fp16", kFp16},
      {"e5m2", kE5M2},
      {"e4m3", kE4M3},
      {"e3m2", kE3M2},
      {"e2m3", kE2M3},
      {"e2m1", kE2M1},
      {"e8m0", kE8M0},
  };
  return kFormats;
}

Format parse_format(std::string_view name) {
  for (const NamedFormat& named : named_formats()) {
    if (name == named.name) {
      return named.format;
    }
  }
  std::string_view rest = name;
  const int exponent_bits = take(rest, 'e') ? take_number(rest) : -1;
  const int mantissa_bits = take(rest, 'm') ? take_number(rest) : -1;
  const bool ieee = take(rest, 'i');
  if (exponent_bits < 1 || exponent_bits > 8 || mantissa_bits < 0 || mantissa_bits > 23 ||
      !rest.empty()) {
    std::string names;
    for (const NamedFormat& named : named_formats()) {
      names += concat(named.name, ", ");
    }
    HALFTONE_CHECK(
        false,
        "format: unknown format '",
        name,
        "'; known are ",
        names,
        "and e<E>m<M> with E 1 to 8 and M 0 to 23 (suffix i: infinity and NaNs as in IEEE 754)");
  }
  const Format format{static_cast<int8_t>(exponent_bits),
                      static_cast<int8_t>(mantissa_bits),
                      ieee ? Specials::ieee : Specials::nan_only};
  HALFTONE_CHECK(
      format.max_code() > 0, "format: '", name, "' holds no number but zero; give it more bits");
  return format;
}

std::string to_string(const Format& format) {
  for (const NamedFormat& named : named_formats()) {
    if (format == named.format) {
      return std::string(named.name);
    }
  }
  return concat("e",
                static_cast<int>(format.exponent_bits),
                "m",
                static_cast<int>(format.mantissa_bits),
                format.specials == Specials::ieee ? "i" : "");
}

void check_overflow(std::string_view op, const Format& format, Overflow overflow) {
  HALFTONE_CHECK(overflow != Overflow::ieee || format.has_infinity() || format.has_nan(),
                 op,
                 ": overflow mode ieee needs infinity or NaN, and ",
                 to_string(format),
                 " has neither; use saturate");
}

}  // namespace halftone
