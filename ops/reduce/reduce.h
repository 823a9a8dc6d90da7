// Sums and means by the fixed trees of core/reduce.h. Results are FP32 whatever the storage of x: a
// sum in 16 bits would stop growing.
#pragma once

#include "core/autograd.h"

namespace halftone {

/// What a reduction runs over.
enum class Over : uint8_t {
  all,      // every element: the flat tree, to a scalar
  last,     // the last axis: the row tree, [..., C] to [...]
  leading,  // the first axis: the column tree, [N, ...] to [...]
};

/// y = the sum of x.
///   x  f32/bf16/f16/f64, at least one axis unless over all      y  f32, or f64 for f64
/// A sum over nothing is 0. Throws std::invalid_argument on another dtype, or an axis x lacks.
Tensor sum(const Tensor& x, Over over = Over::all);

/// The sum divided by the number of elements in it; NaN for none.
Tensor mean(const Tensor& x, Over over = Over::all);

/// The sum over the leading axis into a gradient, or added to it: of x f32/bf16/f16/f64 [N, C] into
/// [C]. Nothing where none is wanted.
void sum_rows_into(const Tensor& x, const GradSink& sink);

namespace detail {

/// x as [rows, columns]. Element (r, c) goes to output r over the last axis, to c over the leading
/// one, to 0 over all.
struct ReduceView {
  int64_t rows;
  int64_t columns;
};

void reduce_cuda(const Tensor& x, Over over, ReduceView view, double divisor, const Tensor& y);
/// The sums over the leading axis into an FP32 gradient.
void column_sums_cuda(const Tensor& x, ReduceView view, const GradSink& sink);
void reduce_gradient_cuda(
    const Tensor& dy, Over over, ReduceView view, double divisor, const GradSink& dx);

}  // namespace detail

}  // namespace halftone
