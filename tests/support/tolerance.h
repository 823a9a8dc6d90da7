// Tolerances derived from the unit roundoff of a type and the number of roundings, so that no test
// picks one by taste. Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
// sections 2.2, 3.1 and 4.2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "core/reduce.h"

namespace halftone::testing {

/// a and b agree if |a - b| <= atol + rtol * |b|.
struct Tolerance {
  double atol = 0.0;
  double rtol = 0.0;
};

/// Largest relative error of one rounding to nearest: half a unit in the last place.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0.0;  // integers are exact
  }
}

/// Largest absolute error of one rounding that underflows: half the smallest subnormal.
constexpr double underflow_error(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0.0;  // 2^-1075 is no double
    case DType::f32:
      return 0x1p-150;
    case DType::f16:
      return 0x1p-25;
    case DType::bf16:
      return 0x1p-134;
    default:
      return 0.0;
  }
}

/// For a value computed with `roundings` roundings in `dtype` that compound without cancellation:
/// (1 + u)^n - 1 <= n u / (1 - n u).
inline Tolerance rounded(DType dtype, int64_t roundings = 1) {
  const double nu = static_cast<double>(roundings) * unit_roundoff(dtype);
  return {.atol = static_cast<double>(roundings) * underflow_error(dtype), .rtol = nu / (1.0 - nu)};
}

/// For a sum or dot product of `length` terms accumulated in `accumulator` in any order, then
/// stored as `stored`: |error| <= n u / (1 - n u) * sum |terms|, where `magnitude` bounds that sum
/// (cancellation makes it larger than the result), plus the rounding of the store, relative to a
/// result that is off itself.
inline Tolerance summed(int64_t length, double magnitude, DType accumulator, DType stored) {
  const Tolerance sum = rounded(accumulator, length);
  const double store = accumulator == stored ? 0.0 : unit_roundoff(stored);
  return {.atol = sum.rtol * magnitude * (1.0 + store) + sum.atol + underflow_error(stored),
          .rtol = store};
}

/// Additions that any one element passes through in the row tree over n elements (core/reduce.h):
/// its lane, the 8 levels over 256 lanes, the later chunks. In `summed` it replaces the length.
inline int64_t row_tree_depth(int64_t n) {
  const int64_t in_chunk = std::min<int64_t>(n, kRowChunk);
  return (in_chunk + kRowLanes - 1) / kRowLanes + 8 + (n + kRowChunk - 1) / kRowChunk;
}

}  // namespace halftone::testing
