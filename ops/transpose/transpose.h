// Two axes swapped.
#pragma once

#include "core/tensor.h"

namespace halftone {

/// A contiguous copy of x with two axes swapped; negative axes count from the back. Any dtype; the
/// gradient is dy with the same axes swapped. Throws std::invalid_argument on an axis x lacks.
Tensor transpose(const Tensor& x, int axis_a = -2, int axis_b = -1);

}  // namespace halftone
