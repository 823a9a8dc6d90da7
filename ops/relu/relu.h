// Rectified linear unit.
#pragma once

#include "core/tensor.h"
#include "ops/gemm/activation.h"

namespace halftone {

/// y = max(x, 0), elementwise; NaN stays NaN.
///   x, y  any shape, f32/bf16/f16/f64, the same dtype
/// The derivative at 0 is 0. Keeps y for backward. Throws std::invalid_argument on another dtype.
Tensor relu(const Tensor& x);

namespace detail {
struct Relu {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return relu(x);
  }
};
struct ReluSlope {
  template <class T>
  HALFTONE_HD T operator()(T x) const {
    return relu_grad(x);
  }
};
}  // namespace detail

}  // namespace halftone
