// Conversions between storage types: scalars for loops and kernels, and whole arrays for the CPU.
// Every function equals the codec of core/formats.h bit for bit, whatever the instruction set it
// was compiled for (on a GPU the hardware's conversions to 16 bits, which write the same NaN).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/formats.h"

namespace halftone {

HALFTONE_HD_INLINE constexpr float to_float(float x) { return x; }
HALFTONE_HD_INLINE constexpr float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
HALFTONE_HD_INLINE constexpr float to_float(Half x) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
  }
#endif
  return decode(kFp16, x.bits);
}

/// encode(kBf16, x), in fewer instructions: rounding may carry into the exponent and up to
/// infinity.
HALFTONE_HD_INLINE constexpr BFloat16 to_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (!std::is_constant_evaluated()) {
    BFloat16 value{};
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
    return value;
  }
#endif
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return BFloat16{static_cast<uint16_t>(is_nan ? 0x7fff : rounded)};
}
HALFTONE_HD_INLINE constexpr Half to_half(float x) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    Half value{};
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
    return value;
  }
#endif
  return Half{static_cast<uint16_t>(encode(kFp16, x))};
}

/// x in storage type T (float, BFloat16 or Half), rounded to nearest even.
template <class T>
HALFTONE_HD_INLINE constexpr T from_float(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else if constexpr (kDTypeOf<T> == DType::bf16) {
    return to_bf16(x);
  } else {
    return to_half(x);
  }
}

// Arrays, on the calling thread. x and y do not overlap, but for x == y in round_scaled.

/// y[i] = x[i] in the other type, rounded to nearest even.
void convert(const float* x, size_t n, BFloat16* y);
void convert(const float* x, size_t n, Half* y);
void convert(const BFloat16* x, size_t n, float* y);
void convert(const Half* x, size_t n, float* y);

/// How an array is rounded. draws: one 32-bit draw an element, read by Rounding::stochastic alone.
struct RoundingMode {
  Rounding rounding = Rounding::nearest;
  Overflow overflow = Overflow::standard;
  const uint32_t* draws = nullptr;
};

/// codes[i] = encode(f, RN(x[i] * r)), one code a byte. Throws std::invalid_argument if f has more
/// than 8 bits.
void encode_scaled(
    Format f, const float* x, float r, size_t n, uint8_t* codes, const RoundingMode& mode = {});

/// y[i] = round_to(f, RN(x[i] * r)): for formats stored as FP32.
void round_scaled(
    Format f, const float* x, float r, size_t n, float* y, const RoundingMode& mode = {});

/// y[i] = RN(decode(f, codes[i]) * s). f has at most 8 bits.
void decode_scaled(Format f, const uint8_t* codes, float s, size_t n, float* y);

}  // namespace halftone
