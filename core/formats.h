// Number formats and their codecs, host and device: IEEE binary16, bfloat16, TF32, OCP FP8 (E4M3,
// E5M2), OCP MX (E3M2, E2M3, E2M1, E8M0) and any other e<E>m<M>. Conversion goes straight from the
// source value: there is never a second rounding. Codecs work on bits alone, so flush-to-zero and
// the machine's rounding mode do not reach them, and they give the same bits on host and device.
// Called with a constant Format they fold to a few instructions without a
// branch. A Format travels by value: device code cannot take the address of a host constant. NaN is
// one code on purpose: encode writes the positive code of all ones, as NVIDIA's conversions do,
// whatever the sign and payload of the source (the host's 0/0 is negative, the device's positive).
// Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats
// (MX) 1.0.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"

// The codecs are large before their constants fold, so loops must not be left with a call.
#ifdef __CUDACC__
#define HALFTONE_HD_INLINE __host__ __device__ __forceinline__
#else
#define HALFTONE_HD_INLINE __attribute__((always_inline)) inline
#endif

namespace halftone {

/// What the top codes mean. ieee: the top exponent holds infinity and NaNs. nan_only: the code of
/// all ones is NaN, every other is a number (E4M3). finite: every code is a number (E3M2, E2M3,
/// E2M1). scale: a power of two 2^(code-127) without sign or zero, all ones is NaN (E8M0).
enum class Specials : uint8_t { ieee, nan_only, finite, scale };

/// nearest: to nearest, ties to even. zero: toward zero. stochastic: away from zero if a 32-bit
/// draw is below floor(fraction * 2^32), so exact values never move.
enum class Rounding : uint8_t { nearest, stochastic, zero };

/// What becomes of a value that rounds to more than the largest finite one, and of infinity.
/// saturate: the largest finite value. ieee: infinity; in a format without it NaN; toward zero a
/// finite value still stops at the largest finite one. standard: FP8 and narrower saturate, wider
/// formats take ieee.
enum class Overflow : uint8_t { standard, saturate, ieee };

/// Format and rounding of scales: fp32 keeps amax / max(format); e8m0 takes the smallest power of
/// two that is not below it, e8m0_ceil and e8m0_floor round log2(amax) and subtract the format's
/// largest exponent; e4m3 is NVFP4's, under one FP32 scale.
enum class ScaleRule : uint8_t { fp32, e8m0, e8m0_ceil, e8m0_floor, e4m3 };

/// A binary floating-point format: sign, E exponent bits of bias 2^(E-1)-1, M stored fraction bits.
struct Format {
  int8_t exponent_bits;
  int8_t mantissa_bits;
  Specials specials;

  HALFTONE_HD constexpr bool has_sign() const { return specials != Specials::scale; }
  HALFTONE_HD constexpr int bits() const { return has_sign() + exponent_bits + mantissa_bits; }
  HALFTONE_HD constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  HALFTONE_HD constexpr bool has_infinity() const { return specials == Specials::ieee; }
  /// e<E>m0i has an infinity but no fraction bit left for a NaN.
  HALFTONE_HD constexpr bool has_nan() const {
    return specials == Specials::ieee ? mantissa_bits > 0 : specials != Specials::finite;
  }

  // Codes without the sign bit.
  HALFTONE_HD constexpr uint32_t magnitude_mask() const {
    return (1u << (exponent_bits + mantissa_bits)) - 1;
  }
  HALFTONE_HD constexpr uint32_t infinity_code() const {  // only with has_infinity()
    return ((1u << exponent_bits) - 1) << mantissa_bits;
  }
  HALFTONE_HD constexpr uint32_t nan_code() const {
    return magnitude_mask();
  }  // only with has_nan()
  HALFTONE_HD constexpr uint32_t max_code() const {
    return specials == Specials::ieee     ? infinity_code() - 1
           : specials == Specials::finite ? magnitude_mask()
                                          : magnitude_mask() - 1;
  }

  HALFTONE_HD constexpr bool saturates(Overflow overflow) const {
    return overflow == Overflow::saturate || (overflow == Overflow::standard && bits() <= 8);
  }

  // Values, in double because e8m<M> passes the range of float. With E = 1 and `i` every number is
  // subnormal and min_normal is above max_finite.
  HALFTONE_HD constexpr double max_finite() const;
  HALFTONE_HD constexpr double min_normal() const;
  HALFTONE_HD constexpr double min_subnormal() const;  // the smallest value above zero
  HALFTONE_HD constexpr double epsilon()
      const;  // the gap above 1 where the exponent range holds it: 2^-M
  HALFTONE_HD constexpr int max_exponent() const;  // floor(log2(max_finite)), the "emax" of OCP MX

  friend constexpr bool operator==(const Format&, const Format&) = default;
};

inline constexpr Format kFp32{8, 23, Specials::ieee};
inline constexpr Format kTf32{8, 10, Specials::ieee};
inline constexpr Format kBf16{8, 7, Specials::ieee};
inline constexpr Format kFp16{5, 10, Specials::ieee};
inline constexpr Format kE5M2{5, 2, Specials::ieee};
inline constexpr Format kE4M3{4, 3, Specials::nan_only};
inline constexpr Format kE3M2{3, 2, Specials::finite};
inline constexpr Format kE2M3{2, 3, Specials::finite};
inline constexpr Format kE2M1{2, 1, Specials::finite};
inline constexpr Format kE8M0{8, 0, Specials::scale};

struct NamedFormat {
  std::string_view name;
  Format format;
};
/// The formats with a name of their own, widest first.
const std::vector<NamedFormat>& named_formats();

/// "fp32", "tf32", "bf16", "fp16", "e4m3", "e5m2", ..., and e<E>m<M> (like E4M3) or e<E>m<M>i (like
/// IEEE) with E 1 to 8, M 0 to 23 and a largest value above zero. Throws std::invalid_argument with
/// the list of names.
Format parse_format(std::string_view name);
std::string to_string(const Format& format);

/// Throws std::invalid_argument where the overflow mode asks for what the format lacks: ieee
/// without infinity and NaN.
void check_overflow(std::string_view op, const Format& format, Overflow overflow);

namespace detail {

template <class Real>
struct RealBits;
template <>
struct RealBits<float> {
  using Word = uint32_t;
  static constexpr int kFraction = 23, kBias = 127;
};
template <>
struct RealBits<double> {
  using Word = uint64_t;
  static constexpr int kFraction = 52, kBias = 1023;
};

HALFTONE_HD constexpr double power_of_two(int exponent) {  // exponent -1022 to 1023
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// base + significand / 2^shift, rounded; a tie goes to an even sum. shift may exceed the width of
// Word, if significand is below a quarter of its range.
template <class Word>
HALFTONE_HD_INLINE constexpr Word shift_round(
    Word base, Word significand, int shift, Rounding rounding, uint32_t draw) {
  constexpr int kLimit = 8 * sizeof(Word) - 2;
  const int s = shift < kLimit ? shift : kLimit;  // beyond it nothing but a remainder is left
  const Word one = 1;
  const Word mask = (one << s) - 1;
  const Word floor = base + (significand >> s);
  if (rounding == Rounding::nearest) {
    // Add just under a half, or a half where the sum is odd.
    return base + ((significand + (mask >> 1) + (mask & floor & 1)) >> s);
  }
  const Word remainder = significand & mask;
  if (rounding == Rounding::stochastic) {
    const int t = shift < 95 ? shift : 95;  // fraction * 2^32 = remainder * 2^(32 - t)
    const uint64_t wide = remainder;
    const uint64_t threshold = t <= 32 ? wide << (32 - t) : wide >> (t - 32);
    return floor + (draw < threshold);
  }
  return floor;
}

template <class Real>
HALFTONE_HD_INLINE constexpr uint32_t encode(
    Format f, Real x, Rounding rounding, Overflow overflow, uint32_t draw) {
  using Word = typename RealBits<Real>::Word;
  constexpr int kFraction = RealBits<Real>::kFraction;
  constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
  constexpr Word kHidden = Word{1} << kFraction;
  constexpr Word kInfinity = kSign - kHidden;

  const Word word = std::bit_cast<Word>(x);
  const Word magnitude = word & ~kSign;
  const bool negative = word >= kSign;
  const bool is_scale = f.specials == Specials::scale;

  Word code = 0;
  if (sizeof(Real) == 4 && f.exponent_bits == 8) {
    // The source's own exponents: only the fraction gets shorter.
    code = shift_round<Word>(0, magnitude, kFraction - f.mantissa_bits, rounding, draw);
  } else {
    // Subnormals of both sides lie on the grid of the smallest normal exponent. E8M0 has one normal
    // exponent more.
    const int lowest = RealBits<Real>::kBias - f.bias() + !is_scale;
    const int field = static_cast<int>(magnitude >> kFraction);
    const int exponent = field > 1 ? field : 1;
    const int grid = exponent > lowest ? exponent : lowest;
    const Word significand = (magnitude & (kHidden - 1)) + (field > 0 ? kHidden : 0);
    const Word base = (static_cast<Word>(grid - lowest) << f.mantissa_bits) - is_scale;
    code = shift_round(
        base, significand, kFraction - f.mantissa_bits + grid - exponent, rounding, draw);
    if (is_scale && code == ~Word{0}) {  // below 2^-127
      code = 0;
    }
  }

  const uint32_t max_code = f.max_code();
  const uint32_t nan_code = f.has_nan() ? f.nan_code() : max_code;
  const bool infinite = magnitude == kInfinity;
  const bool stops = f.saturates(overflow) || (rounding == Rounding::zero && !infinite);
  const uint32_t beyond = f.has_infinity() ? f.infinity_code() : nan_code;
  uint32_t result = static_cast<uint32_t>(code);
  // The source's infinity rounds to a code past max_code, but for e8m<M>, which has a number there.
  const bool wide = f.exponent_bits == 8 && !f.has_infinity();
  if (code > max_code || (wide && infinite)) {
    result = stops ? max_code : beyond;
  }
  const bool is_nan = magnitude > kInfinity || (is_scale && negative && magnitude > 0) ||
                      (result > max_code && !f.has_infinity());
  const uint32_t sign = negative && f.has_sign() ? f.magnitude_mask() + 1 : 0;
  return is_nan ? nan_code : result | sign;
}

}  // namespace detail

/// The code of x in format f, right-aligned, rounded once. `draw` is read by Rounding::stochastic
/// alone. NaN gives nan_code(), and max_code() in a format without NaN (NVIDIA's hardware does the
/// same; `formats` refuses it). ieee overflow in a format with neither infinity nor NaN saturates;
/// check_overflow refuses it. E8M0 has no zero and no sign: what lies below 2^-127, zero included,
/// gives 2^-127, and a negative value NaN.
HALFTONE_HD_INLINE constexpr uint32_t encode(Format f,
                                             float x,
                                             Rounding rounding = Rounding::nearest,
                                             Overflow overflow = Overflow::standard,
                                             uint32_t draw = 0) {
  if (f.specials == Specials::scale) {  // as double, where every value of E8M0 is normal
    return detail::encode<double>(f, x, rounding, overflow, draw);
  }
  return detail::encode<float>(f, x, rounding, overflow, draw);
}
HALFTONE_HD_INLINE constexpr uint32_t encode(Format f,
                                             double x,
                                             Rounding rounding = Rounding::nearest,
                                             Overflow overflow = Overflow::standard,
                                             uint32_t draw = 0) {
  return detail::encode<double>(f, x, rounding, overflow, draw);
}

/// The value of a code, exact; e8m<M> without `i` passes the range of float: its values from 2^128
/// on give infinity. Which NaN a NaN code gives is not promised.
HALFTONE_HD_INLINE constexpr float decode(Format f, uint32_t code) {
  const int shift = 23 - f.mantissa_bits;
  const uint32_t magnitude = code & f.magnitude_mask();
  const uint32_t sign = code > f.magnitude_mask() ? 0x80000000u : 0;
  uint32_t bits = magnitude << shift;
  if (f.specials == Specials::scale) {
    bits = magnitude == 0 ? 0x00400000u : bits;
  } else if (f.exponent_bits < 8) {
    // Raised by one exponent a subnormal becomes normal, and subtracting the hidden bit is exact:
    // no float subnormals.
    const uint32_t lowest = static_cast<uint32_t>(128 - f.bias()) << 23;
    const uint32_t raised = lowest + bits;
    const float subnormal = std::bit_cast<float>(raised) - std::bit_cast<float>(lowest);
    bits = magnitude < 1u << f.mantissa_bits ? std::bit_cast<uint32_t>(subnormal)
                                             : raised - (1u << 23);
  } else if (!f.has_infinity()) {
    bits = bits > 0x7f800000u ? 0x7f800000u : bits;
  }
  if (f.has_infinity() && magnitude >= f.infinity_code()) {
    bits = 0x7f800000u | (magnitude << shift);
  }
  if (f.has_nan() && !f.has_infinity() && magnitude == f.nan_code()) {
    bits = 0x7fffffffu;
  }
  return std::bit_cast<float>(bits | sign);
}

/// The value of a code, exact in every format.
HALFTONE_HD constexpr double decode_double(Format f, uint32_t code) {
  const uint32_t magnitude = code & f.magnitude_mask();
  const bool is_scale = f.specials == Specials::scale;
  const int field = static_cast<int>(magnitude >> f.mantissa_bits);
  const uint64_t fraction = magnitude & ((1u << f.mantissa_bits) - 1);
  double value = 0;
  if (magnitude > f.max_code()) {
    const bool infinite = f.has_infinity() && magnitude == f.infinity_code();
    value = std::bit_cast<double>(infinite ? 0x7ff0000000000000u : 0x7fffffffffffffffu);
  } else if (field == 0 && !is_scale) {
    value = static_cast<double>(fraction) * detail::power_of_two(1 - f.bias() - f.mantissa_bits);
  } else {
    const auto exponent = static_cast<uint64_t>(int64_t{field} - f.bias() + 1023);
    value = std::bit_cast<double>(exponent << 52 | fraction << (52 - f.mantissa_bits));
  }
  return code > f.magnitude_mask() ? -value : value;
}

/// x rounded to f, as a value: what a tensor that stores f in FP32 holds (TF32, e5m12, ...).
HALFTONE_HD_INLINE constexpr float round_to(Format f,
                                            float x,
                                            Rounding rounding = Rounding::nearest,
                                            Overflow overflow = Overflow::standard,
                                            uint32_t draw = 0) {
  return decode(f, encode(f, x, rounding, overflow, draw));
}

HALFTONE_HD constexpr double Format::max_finite() const { return decode_double(*this, max_code()); }
HALFTONE_HD constexpr double Format::min_normal() const {
  return detail::power_of_two(has_sign() - bias());
}
HALFTONE_HD constexpr double Format::min_subnormal() const {
  return detail::power_of_two(has_sign() - bias() - mantissa_bits);
}
HALFTONE_HD constexpr double Format::epsilon() const {
  return detail::power_of_two(-mantissa_bits);
}
HALFTONE_HD constexpr int Format::max_exponent() const {
  return static_cast<int>(std::bit_cast<uint64_t>(max_finite()) >> 52) - 1023;
}

}  // namespace halftone
