// The same values in another dtype, or in row-major order.
#pragma once

#include "core/autograd.h"

namespace halftone {

/// x as `dtype`, each element rounded once to nearest even; x itself where it has that dtype.
///   x  contiguous, f32/bf16/f16/f64, any shape
/// The gradient is dy in the dtype of x. Throws std::invalid_argument on another dtype.
Tensor cast(const Tensor& x, DType dtype);

/// x with its elements in row-major order: a copy of a strided view, x itself where they are. Any
/// dtype.
Tensor contiguous(const Tensor& x);

/// to[i] = from[i] in the dtype of `to`, rounded once, or to[i] += from[i]; both contiguous and
/// floating, with as many elements, on one device.
void convert_into(const Tensor& from, const Tensor& to, bool accumulate = false);

/// What is backward of an op that changes dtype or shape alone: dy handed on (GradSink::take), or
/// its elements, as the sink's dtype, written or added. Does nothing where no gradient is wanted.
void convert_gradient(const Tensor& dy, const GradSink& dx);

namespace detail {
void convert_cuda(const Tensor& from, const Tensor& to, bool accumulate);
}  // namespace detail

}  // namespace halftone
