// Gaussian error linear unit, in its tanh form (GPT-2's) and exactly.
#pragma once

#include "core/math_near.h"
#include "core/tensor.h"
#include "ops/gelu/gelu_exact.h"

namespace halftone {

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise; errors as in core/math.h.
///   x, y  any shape, f32/bf16/f16/f64, the same dtype; computed in f32 (f64 for f64)
/// Far out y is x or -0 and the derivative 1 or 0, whatever the dtype. Keeps x for backward.
/// Throws std::invalid_argument on another dtype. Source: Hendrycks & Gimpel, arXiv:1606.08415.
Tensor gelu(const Tensor& x);

/// y = x Phi(x) = 0.5 x (1 + erf(x / sqrt(2))), elementwise; otherwise as gelu. Below zero the sum
/// cancels: at most 2^-22 off there (f32).
Tensor gelu_exact(const Tensor& x);

namespace detail {
struct Gelu {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return math::gelu(x);
  }
  static constexpr float kNear = math::kGeluNear;
  HALFTONE_HD float near(float x) const { return math::gelu_near(x); }
};
struct GeluSlope {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return math::gelu_grad(x);
  }
  static constexpr float kNear = math::kGeluNear;
  HALFTONE_HD float near(float x) const { return math::gelu_grad_near(x); }
};
struct GeluExact {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return math::gelu_exact(x);
  }
};
struct GeluExactSlope {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return math::gelu_exact_grad(x);
  }
};
}  // namespace detail

}  // namespace halftone
