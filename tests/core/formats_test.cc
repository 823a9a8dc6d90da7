// Codecs against exact arithmetic. The oracle knows a format as an ascending list of values; a
// source value lies between two neighbours, whose midpoint and difference are exact in double
// because they need at most 25 bits. It shares nothing with the codec, which shifts bits.
#include "core/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace halftone {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The value of a code without sign, also of the codes past max_code() as if they continued the
// numbers.
double value_of(const Format& f, uint32_t code) {
  if (f.specials == Specials::scale) {
    return std::ldexp(1.0, static_cast<int>(code) - 127);
  }
  const uint32_t one = 1u << f.mantissa_bits;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code / one);
  return exponent == 0 ? std::ldexp(code % one, 1 - bias - f.mantissa_bits)
                       : std::ldexp(one + code % one, exponent - bias - f.mantissa_bits);
}

struct Special {
  uint32_t max_code, infinity, nan;
};

// What the codes of each kind mean, spelled out once more: NaN and infinity fall back as encode
// documents.
Special specials_of(const Format& f) {
  const uint32_t ones = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
  const uint32_t top = ones - ((1u << f.mantissa_bits) - 1);
  if (f.specials == Specials::ieee) {
    return {top - 1, top, f.mantissa_bits > 0 ? ones : top - 1};
  }
  if (f.specials == Specials::finite) {
    return {ones, ones, ones};
  }
  return {ones - 1, ones, ones};
}

class Oracle {
 public:
  explicit Oracle(const Format& f) : f_(f), special_(specials_of(f)) {
    for (uint32_t code = 0; code <= std::min(special_.max_code + 1, 1u << 16); ++code) {
      values_.push_back(value_of(f, code));
    }
  }

  // Places x between the neighbours low and low + 1; what follows asks about this x.
  void place(double x) {
    x_ = x;
    const double magnitude = std::fabs(x);
    uint32_t low = 0, high = special_.max_code + 1;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (value(middle) <= magnitude ? low : high) = middle;
    }
    low_ = low;
    const double below = value(low), above = value(low + 1);
    beyond_ = magnitude >= above;  // past even the first number that is missing
    above_middle_ = magnitude > (below + above) / 2;
    tie_ = magnitude == (below + above) / 2;
    fraction_ = magnitude < below ? 0 : (magnitude - below) / (above - below);
  }

  // Where a draw stops rounding away from zero.
  uint64_t threshold() const {
    return beyond_ ? 0 : static_cast<uint64_t>(std::floor(std::ldexp(fraction_, 32)));
  }

  uint32_t code(Rounding rounding, Overflow overflow, uint32_t draw) const {
    const bool unsigned_format = f_.specials == Specials::scale;
    if (std::isnan(x_) || (unsigned_format && x_ < 0)) {
      return special_.nan;
    }
    bool up = false;
    switch (rounding) {
      case Rounding::nearest:
        up = above_middle_ || (tie_ && low_ % 2 == 1);
        break;
      case Rounding::stochastic:
        up = draw < threshold();
        break;
      case Rounding::zero:
        break;
    }
    const int width = f_.exponent_bits + f_.mantissa_bits;
    const bool narrow = width + !unsigned_format <= 8;
    const bool saturates =
        overflow == Overflow::saturate || (overflow == Overflow::standard && narrow);
    uint32_t result = low_ + up;
    if (std::isinf(x_)) {
      result = saturates ? special_.max_code : special_.infinity;
    } else if (beyond_ || result > special_.max_code) {
      result = saturates || rounding == Rounding::zero ? special_.max_code : special_.infinity;
    }
    const bool is_nan = result == special_.nan && special_.nan != special_.max_code;
    return std::signbit(x_) && !unsigned_format && !is_nan ? result | 1u << width : result;
  }

 private:
  double value(uint32_t code) const {
    return code < values_.size() ? values_[code] : value_of(f_, code);
  }

  Format f_;
  Special special_;
  std::vector<double> values_;  // of the first 2^16 codes: a search reads them often
  double x_ = 0, fraction_ = 0;
  uint32_t low_ = 0;
  bool beyond_ = false, above_middle_ = false, tie_ = false;
};

std::vector<Format> all_formats() {
  std::vector<Format> formats;
  for (const NamedFormat& named : named_formats()) {
    formats.push_back(named.format);
  }
  for (const char* name :
       {"e1m1",  "e1m1i", "e1m2",  "e1m5i", "e1m23", "e2m0", "e2m0i", "e3m0", "e2m1i",
        "e2m5",  "e3m4",  "e3m4i", "e4m3i", "e4m0",  "e5m1", "e5m10", "e6m1", "e7m0",
        "e7m0i", "e6m9i", "e7m23", "e8m0i", "e8m1",  "e8m7", "e5m12", "e8m23"}) {
    formats.push_back(parse_format(name));
  }
  return formats;
}

// Every code up to 2^15; of longer formats those around each power of two, and an even sample.
std::vector<uint32_t> codes_to_try(const Format& f) {
  const uint32_t end = specials_of(f).max_code + 1;  // one past the largest number
  std::vector<uint32_t> codes;
  const uint32_t step = end <= 1u << 15 ? 1 : (end >> 14) - 1;
  for (uint32_t code = 0; code <= end; code += step) {
    codes.push_back(code);
  }
  for (uint32_t power = 1u << f.mantissa_bits; step > 1 && power <= end;
       power += 1u << f.mantissa_bits) {
    codes.insert(codes.end(), {power - 2, power - 1, power, power + 1});
  }
  codes.insert(codes.end(), {end - 2, end - 1, end});
  return codes;
}

template <class Real>
std::vector<Real> sources_of(const Format& f) {
  const Real infinity = std::numeric_limits<Real>::infinity();
  std::vector<Real> sources = {Real(kNaN),
                               infinity,
                               std::numeric_limits<Real>::max(),
                               std::numeric_limits<Real>::min(),
                               std::numeric_limits<Real>::denorm_min(),
                               0};
  for (int exponent = 1; exponent < 70;
       exponent += 3) {  // far below the smallest value: stochastic still moves them
    sources.push_back(static_cast<Real>(std::ldexp(1.75, -exponent) * value_of(f, 1)));
  }
  for (const uint32_t code : codes_to_try(f)) {
    const double below = value_of(f, code), above = value_of(f, code + 1);
    for (const double exact : {below, (below + above) / 2, below + (above - below) / 3}) {
      const Real x = static_cast<Real>(exact);
      sources.push_back(x);
      sources.push_back(std::nextafter(x, Real(0)));
      sources.push_back(std::nextafter(x, infinity));
    }
  }
  return sources;
}

template <class Real>
void check_every_mode(const Format& f) {
  Oracle oracle(f);
  for (const Real magnitude : sources_of<Real>(f)) {
    for (const Real x : {magnitude, -magnitude}) {
      oracle.place(x);
      const uint32_t threshold = static_cast<uint32_t>(oracle.threshold());
      for (const Overflow overflow : {Overflow::standard, Overflow::saturate, Overflow::ieee}) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::zero}) {
          ASSERT_EQ(encode(f, x, rounding, overflow), oracle.code(rounding, overflow, 0))
              << to_string(f) << " of " << x << " rounding " << int(rounding) << " overflow "
              << int(overflow);
        }
        for (const uint32_t draw : {0u, threshold - 1, threshold, ~0u}) {
          ASSERT_EQ(encode(f, x, Rounding::stochastic, overflow, draw),
                    oracle.code(Rounding::stochastic, overflow, draw))
              << to_string(f) << " of " << x << " draw " << draw << " overflow " << int(overflow);
        }
      }
    }
  }
}

TEST(Formats, EncodeAgreesWithExactArithmeticFromFloat) {
  for (const Format& f : all_formats()) {
    check_every_mode<float>(f);
  }
}

TEST(Formats, EncodeAgreesWithExactArithmeticFromDouble) {
  for (const Format& f : all_formats()) {
    check_every_mode<double>(f);
  }
}

TEST(Formats, EveryCodeDecodesToItsValueAndBack) {
  for (const Format& f : all_formats()) {
    const Special special = specials_of(f);
    const uint32_t sign = f.has_sign() ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    const uint32_t end = 1u << (f.exponent_bits + f.mantissa_bits);
    const uint32_t step = end > 1u << 18 ? (end >> 16) - 1 : 1;
    for (uint32_t code = 0; code < end; code += step) {
      const double wide = decode_double(f, code);
      const float narrow = decode(f, code);
      if (code <= special.max_code) {
        const double value = value_of(f, code);
        ASSERT_EQ(wide, value) << to_string(f) << " code " << code;
        ASSERT_EQ(narrow, value < 0x1p128 ? static_cast<float>(value) : HUGE_VALF)
            << to_string(f) << " code " << code;
        ASSERT_EQ(encode(f, wide), code) << to_string(f);
      } else if (f.has_infinity() && code == special.infinity) {
        ASSERT_EQ(wide, kInf);
        ASSERT_EQ(narrow, HUGE_VALF);
      } else {
        ASSERT_TRUE(std::isnan(wide) && std::isnan(narrow)) << to_string(f) << " code " << code;
        ASSERT_EQ(encode(f, narrow), special.nan);
      }
      if (sign != 0) {
        const double negative = decode_double(f, code | sign);
        ASSERT_TRUE(std::isnan(wide) ? std::isnan(negative)
                                     : negative == -wide && std::signbit(negative));
        ASSERT_EQ(std::bit_cast<uint32_t>(decode(f, code | sign)),
                  std::bit_cast<uint32_t>(narrow) | 0x80000000u);
      }
    }
  }
}

TEST(Formats, CodecsAreConstant) {
  static_assert(encode(kE4M3, 1.0f) == 0x38);
  static_assert(decode(kE2M1, 0x7) == 6.0f);
  static_assert(round_to(kTf32, 1.0f + 0x1p-11f) == 1.0f);
  static_assert(kE4M3.max_finite() == 448 && kE5M2.max_finite() == 57344 &&
                kE2M1.max_finite() == 6);
  static_assert(kE3M2.max_finite() == 28 && kE2M3.max_finite() == 7.5 &&
                kFp16.max_finite() == 65504);
  static_assert(kFp16.min_normal() == 0x1p-14 && kFp16.min_subnormal() == 0x1p-24);
  static_assert(kE4M3.min_subnormal() == 0x1p-9 && kE8M0.min_subnormal() == 0x1p-127);
  static_assert(kBf16.epsilon() == 0x1p-7 && kTf32.bits() == 19 && kE8M0.bits() == 8);
  static_assert(kE4M3.max_exponent() == 8 && kE5M2.max_exponent() == 15 &&
                kE2M1.max_exponent() == 2);
}

TEST(Formats, NamesParseAndPrint) {
  for (const Format& f : all_formats()) {
    EXPECT_EQ(parse_format(to_string(f)), f) << to_string(f);
  }
  EXPECT_EQ(parse_format("e5m2i"), kE5M2);
  EXPECT_EQ(parse_format("e8m7i"), kBf16);
  EXPECT_EQ(parse_format("e4m3i").max_finite(), 240);
  EXPECT_EQ(parse_format("e3m4").max_finite(), 30);
  for (const char* name : {"",
                           "e",
                           "fp8",
                           "FP16",
                           "e4",
                           "e4m",
                           "e0m3",
                           "e9m3",
                           "e4m24",
                           "e04m3",
                           "e4m3x",
                           "e4m3ii",
                           " e4m3",
                           "e4m-3",
                           "e1m0",
                           "e1m0i",
                           "e100m3"}) {
    EXPECT_THROW(parse_format(name), std::invalid_argument) << name;
  }
}

TEST(Formats, IeeeOverflowNeedsSomewhereToGo) {
  EXPECT_THROW(check_overflow("t", kE2M1, Overflow::ieee), std::invalid_argument);
  EXPECT_NO_THROW(check_overflow("t", kE2M1, Overflow::saturate));
  EXPECT_NO_THROW(check_overflow("t", kE4M3, Overflow::ieee));
  EXPECT_NO_THROW(check_overflow("t", parse_format("e2m0i"), Overflow::ieee));
}

}  // namespace
}  // namespace halftone
