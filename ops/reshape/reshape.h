// Another shape for the same elements.
#pragma once

#include "core/tensor.h"

namespace halftone {

/// x under another shape of as many elements, in row-major order. The elements are shared, not
/// copied; any dtype. Throws std::invalid_argument where the numbers differ or x is not contiguous.
Tensor reshape(const Tensor& x, const Shape& shape);

}  // namespace halftone
