// Sum of two tensors, elementwise, with broadcasting.
#pragma once

#include "core/tensor.h"

namespace halftone {

/// y = a + b.
///   a, b, y  f32/bf16/f16/f64, the same dtype; y has the shape that a's and b's meet in
/// Shapes are aligned at the last axis; an axis of extent 1, or a missing one, is repeated, and its
/// gradient is the sum over what was repeated (core/reduce.h's trees, in f32). Keeps nothing for
/// backward. Throws std::invalid_argument where dtypes differ or shapes do not meet.
Tensor add(const Tensor& a, const Tensor& b);

namespace detail {
struct Add {
  template <class T>
  HALFTONE_HD T operator()(T u, T v) const {
    return u + v;
  }
};
}  // namespace detail

}  // namespace halftone
