// The same values in another dtype, or in row-major order.
#pragma once

#include "core/tensor.h"

namespace halftone {

/// x as `dtype`, each element rounded once to nearest even; x itself where it has that dtype.
///   x  contiguous, f32/bf16/f16/f64, any shape
/// The gradient is dy in the dtype of x. Throws std::invalid_argument on another dtype.
Tensor cast(const Tensor& x, DType dtype);

/// x with its elements in row-major order: a copy of a strided view, x itself where they are. Any
/// dtype.
Tensor contiguous(const Tensor& x);

}  // namespace halftone
