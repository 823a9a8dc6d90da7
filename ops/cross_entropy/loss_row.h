// Maximum and sum of exponentials of a row of logits, in one pass: a chunk of the row tree
// (core/reduce.h) is summed against its own maximum, and the chunks' sums are scaled when all are
// there. So a chunk stays in cache, or in a warp, between its two loops. A row of one chunk has the
// bits of ops/softmax/softmax_row.h.
#pragma once

#include "ops/softmax/softmax_row.h"

namespace halftone {

/// Of a chunk, or of a row: the maximum, and the sum of e^(x - softmax_shift(max)).
template <class C>
struct LossPart {
  C max, sum;
};

/// The row of `count` >= 1 chunks: part(0) to part(count - 1), each called twice.
template <class C, class Part>
HALFTONE_HD LossPart<C> join_parts(int64_t count, const Part& part) {
  C max = part(0).max;
  for (int64_t i = 1; i < count; ++i) {
    max = maximum(max, part(i).max);
  }
  const C shift = softmax_shift(max);
  C sum = C(0);
  for (int64_t i = 0; i < count; ++i) {
    const LossPart<C> p = part(i);
    sum += p.sum * math::exp(p.max - shift);
  }
  return {max, sum};
}

}  // namespace halftone
