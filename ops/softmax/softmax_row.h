// Softmax of one row on the CPU, shared by softmax, cross-entropy and attention (a GPU's is in
// softmax_row.cuh). Maximum and sum are those of core/reduce.h, so trailing elements of -infinity
// change no bit: a causal row may stop at its last visible element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/math.h"
#include "core/reduce.h"

namespace halftone {

template <class C>
struct SoftmaxRow {
  C max;
  C sum;          // of e^(x - max): at least 1; 0 where every x is -infinity
  C inverse_sum;  // 0 where sum is
};

/// What e^(x - max) is taken against: a fully masked row would give (-inf) - (-inf).
template <class C>
HALFTONE_HD C softmax_shift(C max) {
  return max == -std::numeric_limits<C>::infinity() ? C(0) : max;
}

/// 1 / sum of exponentials, 0 for 0.
template <class C>
HALFTONE_HD C softmax_inverse(C sum) {
  return sum == C(0) ? C(0) : math::divide(C(1), sum);
}

/// exp(x) for x <= 0 or NaN: the same bits in fewer instructions.
HALFTONE_HD inline float softmax_exp(float x) {
  return math::detail::exp_of_negative(maximum(x, -104.0f));
}

/// Maximum and sum of the row x(0) ... x(n - 1); store(i, e^(x(i) - max)) is called for each i.
/// Flattened: a call of exp left inside would keep its loop from vectorising.
template <class C, class Load, class Store>
[[gnu::flatten]] SoftmaxRow<C> softmax_row(int64_t n, const Load& x, const Store& store) {
  const C max = row_max<C>(n, x);
  const C shift = softmax_shift(max);
  const C sum = row_sum<C>(n, [&](int64_t i) {
    const C e = math::exp(x(i) - shift);
    store(i, e);
    return e;
  });
  return {max, sum, softmax_inverse(sum)};
}

}  // namespace halftone
