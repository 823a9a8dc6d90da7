// softmax_row on a GPU: a block takes a row.
#pragma once

#include "core/cuda/reduce.cuh"
#include "ops/softmax/softmax_row.h"

namespace halftone::device {

/// Maximum and sum of the row x(0) ... x(n - 1), for every thread of the block. `chunk_sums` and
/// `warp_maxima` as in core/cuda/reduce.cuh; a __syncthreads() comes before the next call.
template <class Load>
__device__ SoftmaxRow<float> softmax_row(int64_t n,
                                         const Load& x,
                                         float* chunk_sums,
                                         float* warp_maxima) {
  const float max = block_row_max<float>(n, x, warp_maxima);
  const float shift = softmax_shift(max);
  const float sum = block_row_sum<float>(
      n, [&](int64_t i) { return softmax_exp(x(i) - shift); }, chunk_sums);
  return {max, sum, softmax_inverse(sum)};
}

}  // namespace halftone::device
