// Functions of core/math.h on the part of their domain where nothing overflows, underflows or has
// reached its limit: the same bits in fewer instructions. Kernels that are bound by instructions
// call them where a whole pack of elements lies in that part.
#pragma once

#include "core/math.h"

namespace halftone::math {

/// Arguments of exp_near reach down to here, to 2^-125.5.
inline constexpr float kExpNear = -87.0f;

/// exp(x) for kExpNear <= x <= 0: the result is normal, so the exponent can simply be added.
HALFTONE_HD inline float exp_near(float x) {
  const detail::Exp e = detail::exp_parts(x);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(e.fraction) + (e.exponent << 23));
}

/// Magnitudes of arguments of gelu_near and gelu_grad_near stay below.
inline constexpr float kGeluNear = 8.0f;

namespace detail {

/// sigmoid_pair for |x| <= -kExpNear, or NaN, which gives anything.
HALFTONE_HD inline Sigmoid<float> sigmoid_pair_near(float x) {
  const float g = exp_near(-std::fabs(x));
  const float large = reciprocal_of_1_to_2(1.0f + g);
  const float small = g * large;
  return {x < 0.0f ? small : large, x < 0.0f ? large : small};
}

}  // namespace detail

/// gelu(x); NaN for NaN.
HALFTONE_HD inline float gelu_near(float x) {
  const float z = x * fma(detail::kGeluCubic<float>, x * x, detail::kGeluLinear<float>);
  return x * detail::sigmoid_pair_near(z).value;
}

/// gelu_grad(x); NaN for NaN.
HALFTONE_HD inline float gelu_grad_near(float x) {
  const float x2 = x * x;
  const float z = x * fma(detail::kGeluCubic<float>, x2, detail::kGeluLinear<float>);
  const float dz = fma(3.0f * detail::kGeluCubic<float>, x2, detail::kGeluLinear<float>);
  const detail::Sigmoid<float> s = detail::sigmoid_pair_near(z);
  return fma(s.value * s.complement, x * dz, s.value);
}

}  // namespace halftone::math
