// Softmax over the last axis.
#pragma once

#include "core/autograd.h"

namespace halftone {

/// y = e^(x - max) / sum(e^(x - max)) over the last axis.
///   x, y  [..., C]  f32/bf16/f16/f64, the same dtype; statistics in f32 (f64 for f64)
/// A row of -infinity alone (fully masked) gives zeros, and its gradient is zero. A NaN or
/// +infinity makes its row NaN. Keeps y for backward. Throws std::invalid_argument on another dtype
/// or a scalar.
Tensor softmax(const Tensor& x);

namespace detail {
void softmax_cuda(const Tensor& x, const Tensor& y);
void softmax_backward_cuda(const Tensor& y, const Tensor& dy, const GradSink& dx);
}  // namespace detail

}  // namespace halftone
