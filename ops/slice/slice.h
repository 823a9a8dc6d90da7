// A range of indices along one axis.
#pragma once

#include "core/tensor.h"

namespace halftone {

/// A contiguous copy of x[..., begin:end, ...] along `axis` (negative: from the back). Any dtype;
/// elements outside the range get a gradient of zero.
/// Throws std::invalid_argument unless 0 <= begin <= end <= x.size(axis).
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);

}  // namespace halftone
