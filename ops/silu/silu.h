// Sigmoid linear unit, also called swish.
#pragma once

#include "core/device.h"
#include "core/math.h"
#include "core/tensor.h"

namespace halftone {

namespace math {

/// x * sigmoid(x); x or -0 far out.
template <class T>
HALFTONE_HD inline T silu(T x) {
  const T c = x < T(-1024) ? T(-1024) : x;  // -inf would meet a sigmoid of zero
  return c * sigmoid(c);
}

/// sigmoid(x) (1 + x (1 - sigmoid(x))). 1 or 0 far out.
template <class T>
HALFTONE_HD inline T silu_grad(T x) {
  const T low = x < T(-1024) ? T(-1024) : x;
  const T c = low > T(1024) ? T(1024) : low;
  const detail::Sigmoid<T> s = detail::sigmoid_pair(detail::sigmoid_clamp(c));
  return fma(s.value * s.complement, c, s.value);
}

}  // namespace math

/// y = x / (1 + e^-x), elementwise.
///   x, y  any shape, f32/bf16/f16/f64, the same dtype; computed in f32 (f64 for f64)
/// Keeps x for backward. Throws std::invalid_argument on another dtype.
/// Source: Elfwing, Uchibe & Doya 2017, arXiv:1702.03118.
Tensor silu(const Tensor& x);

namespace detail {
struct Silu {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return math::silu(x);
  }
};
struct SiluSlope {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return math::silu_grad(x);
  }
};
}  // namespace detail

}  // namespace halftone
