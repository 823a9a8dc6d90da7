// Scales of quantised blocks, host and device: given the largest magnitude of a block (a tensor or
// a row is a block too) and a format, the scale s with q = round(x * r), r = RN(1 / s), x ~ q * s.
// Scales of finite blocks lie in [2^-126, FLT_MAX] ([2^-126, 2^127] if powers of two), so a block
// of zeros divides by nothing and flush-to-zero changes no scale. A non-finite amax gives NaN: it
// is never hidden. Source: OCP MX 1.0, section 6.3; CUDA's RCEIL conversion; NVIDIA's NVFP4 recipe.
#pragma once

#include <bit>
#include <cstdint>

#include "core/formats.h"

namespace halftone {

/// The larger magnitude of two, by bits: NaN beats infinity beats every number. Folding a block
/// with it gives amax.
HALFTONE_HD_INLINE constexpr float max_magnitude(float a, float b) {
  const uint32_t x = std::bit_cast<uint32_t>(a) & 0x7fffffffu;
  const uint32_t y = std::bit_cast<uint32_t>(b) & 0x7fffffffu;
  return std::bit_cast<float>(x > y ? x : y);
}

namespace detail {

HALFTONE_HD_INLINE constexpr float at_least_min_scale(float s) {
  return s < 0x1p-126f ? 0x1p-126f : s;  // NaN stays
}

// max(format) as a float: formats that pass the range of FP32 are scaled to FP32's own maximum.
HALFTONE_HD_INLINE constexpr float largest(Format f) {
  return std::bit_cast<uint32_t>(decode(f, f.max_code())) < 0x7f800000u ? decode(f, f.max_code())
                                                                        : 0x1.fffffep127f;
}

HALFTONE_HD_INLINE constexpr float power_with_field(int field) {
  const int clamped = field < 1 ? 1 : field > 254 ? 254 : field;
  return std::bit_cast<float>(static_cast<uint32_t>(clamped) << 23);
}

}  // namespace detail

/// s of a block, with s0 = max(RN(amax / max(format)), 2^-126) and emax = floor(log2 max(format)).
/// fp32: s0. e8m0 ("RCEIL"): the smallest power of two >= s0. e8m0_ceil: 2^(ceil(log2 amax) -
/// emax). e8m0_floor (OCP MX): 2^(floor(log2 amax) - emax). e4m3 has two levels (nvfp4_* below):
/// NaN. amax >= 0, infinite or NaN.
HALFTONE_HD_INLINE constexpr float block_scale(ScaleRule rule, Format f, float amax) {
  // Adding it carries into the exponent unless the fraction is zero.
  constexpr uint32_t kFraction = (1u << 23) - 1;
  const uint32_t bits = std::bit_cast<uint32_t>(amax);
  const float s = detail::at_least_min_scale(amax / detail::largest(f));
  if (bits < 0x7f800000u) {
    switch (rule) {
      case ScaleRule::fp32:
        return s;
      case ScaleRule::e8m0:
        return detail::power_with_field(
            static_cast<int>((std::bit_cast<uint32_t>(s) + kFraction) >> 23));
      case ScaleRule::e8m0_ceil:
        return detail::power_with_field(static_cast<int>((bits + kFraction) >> 23) -
                                        f.max_exponent());
      case ScaleRule::e8m0_floor:
        return detail::power_with_field(static_cast<int>(bits >> 23) - f.max_exponent());
      case ScaleRule::e4m3:
        break;
    }
  }
  return std::bit_cast<float>(0x7fffffffu);
}

/// r = RN(1 / s).
HALFTONE_HD_INLINE constexpr float reciprocal_scale(float s) { return 1.0f / s; }

/// The E8M0 byte of a power-of-two scale from 2^-127 on, or of NaN (255); decode(kE8M0, byte) gives
/// it back.
HALFTONE_HD_INLINE constexpr uint8_t e8m0_code(float s) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(s) >> 23);
}

/// The FP32 scale of a whole tensor under ScaleRule::e4m3: max(RN(amax / (448 * max(format))),
/// 2^-126); for E2M1 amax / 2688.
HALFTONE_HD_INLINE constexpr float nvfp4_tensor_scale(Format f, float amax_tensor) {
  const bool finite = std::bit_cast<uint32_t>(amax_tensor) < 0x7f800000u;
  const float g = detail::at_least_min_scale(amax_tensor / (448.0f * detail::largest(f)));
  return finite ? g : std::bit_cast<float>(0x7fffffffu);
}

/// The E4M3 code of a block's scale under the tensor's scale g: max(E4M3(RN(RN(amax / max(format))
/// / g)), 2^-9).
HALFTONE_HD_INLINE constexpr uint8_t nvfp4_block_code(Format f, float amax_block, float g) {
  const bool finite = std::bit_cast<uint32_t>(amax_block) < 0x7f800000u;
  const uint32_t code = encode(kE4M3, amax_block / detail::largest(f) / g);
  return static_cast<uint8_t>(!finite ? 0x7f : code == 0 ? 1 : code);
}

/// s = max(RN(b * g), 2^-126) of a block whose scale has the E4M3 code b.
HALFTONE_HD_INLINE constexpr float nvfp4_block_scale(uint8_t code, float g) {
  return detail::at_least_min_scale(decode(kE4M3, code) * g);
}

}  // namespace halftone
