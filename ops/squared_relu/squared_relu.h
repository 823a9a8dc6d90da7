// Squared rectified linear unit, and README's worked example of an op.
// Source: So et al. 2021, "Primer: Searching for Efficient Transformers", arXiv:2109.08668,
// section 4.1.
#pragma once

#include "core/autograd.h"

namespace halftone {

/// y = max(x, 0)^2, elementwise; NaN stays NaN.
///   x, y  any shape, f32/bf16/f16/f64, the same dtype
/// Computed in FP32 (FP64 for f64), rounded once on store. Keeps x for backward. Throws
/// std::invalid_argument on another dtype.
Tensor squared_relu(const Tensor& x);

namespace detail {
void squared_relu_cuda(const Tensor& x, const Tensor& y);
void squared_relu_backward_cuda(const Tensor& x, const Tensor& dy, const GradSink& dx);
}  // namespace detail

/// The function and its derivative, for both backends: written once, so they give the same bits.
template <class T>
HALFTONE_HD inline T squared_relu(T x) {
  return x < T(0) ? T(0) : x * x;
}
template <class T>
HALFTONE_HD inline T squared_relu_grad(T x) {
  return x < T(0) ? T(0) : T(2) * x;
}

}  // namespace halftone
