// Number formats and their codecs, host and device: IEEE binary16, bfloat16, TF32, OCP FP8 (E4M3, E5M2), OCP MX (E3M2, E2M3,
// E2M1) and any other e<E>m<M>. Conversion goes straight from the source value: there is never a second rounding.
// Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats (MX) 1.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/device.h"

namespace halftone {

/// What the top exponent means. ieee: infinities and NaNs. nan_only: the code of all ones is NaN, every other is a number
/// (E4M3). finite: every code is a number (E3M2, E2M3, E2M1).
enum class Specials : uint8_t { ieee, nan_only, finite };

/// A binary floating-point format with one sign bit, E exponent bits of bias 2^(E-1)-1, and M stored fraction bits.
struct Format {
  int8_t exponent_bits;
  int8_t mantissa_bits;
  Specials specials;

  HALFTONE_HD constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  HALFTONE_HD constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
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

/// nearest: to nearest, ties to even. zero: toward zero. stochastic: away from zero if a 32-bit draw is below
/// floor(fraction * 2^32), so exact values never move.
enum class Rounding : uint8_t { nearest, stochastic, zero };

/// standard: FP8 and narrower saturate (infinity included), wider formats go to infinity. saturate and ieee override it.
enum class Overflow : uint8_t { standard, saturate, ieee };

/// "fp32", "tf32", "bf16", "fp16", "e4m3", "e5m2", ..., "e3m4", "e3m4i". Throws std::invalid_argument with the list of names.
Format parse_format(std::string_view name);
std::string to_string(const Format& format);

}  // namespace halftone
