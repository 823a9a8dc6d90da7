// Exact GELU and its derivative for one value, host and device: the same bits on both.
#pragma once

#include "core/device.h"
#include "core/math.h"

namespace halftone::math {

namespace detail {
/// Phi(x), the normal distribution function.
template <class T>
HALFTONE_HD inline T normal_cdf(T x) {
  return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
}
}  // namespace detail

/// x Phi(x). x or -0 far out.
template <class T>
HALFTONE_HD inline T gelu_exact(T x) {
  const T c = detail::gelu_clamp(x);
  return (x < c ? c : x) * detail::normal_cdf(c);
}

/// Phi(x) + x phi(x), phi the normal density.
template <class T>
HALFTONE_HD inline T gelu_exact_grad(T x) {
  const T c = detail::gelu_clamp(x);
  const T density = T(0.39894228040143267794) * exp(T(-0.5) * c * c);
  return fma(c, density, detail::normal_cdf(c));
}

}  // namespace halftone::math
