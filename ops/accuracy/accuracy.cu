#include "ops/accuracy/accuracy.h"

#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

// A block takes a token: is its target the first of the largest logits? A NaN maximum equals
// nothing.
template <class T>
__global__ void count_correct_kernel(int64_t tokens,
                                     int64_t columns,
                                     int64_t vocab,
                                     const T* logits,
                                     const int32_t* targets,
                                     int32_t* correct) {
  __shared__ float warp_maxima[device::kMaxRowWarps];
  __shared__ int32_t earlier;  // logits before the target that are as large
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const int32_t target = targets[token];
    if (target < 0 || target >= vocab) {  // ignored ones among them; the whole block
      continue;
    }
    const T* row = logits + token * columns;
    if (threadIdx.x == 0) {
      earlier = 0;
    }
    const float max = device::block_row_max<float>(
        vocab, [row](int64_t c) { return widen(row[c]); }, warp_maxima);
    for (int64_t c = threadIdx.x; c < target; c += blockDim.x) {
      if (widen(row[c]) == max) {
        atomicAdd(&earlier, 1);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0 && earlier == 0 && widen(row[target]) == max) {
      atomicAdd(correct, 1);  // integers: any order gives the same
    }
    __syncthreads();
  }
}

}  // namespace

void detail::count_correct_cuda(const Tensor& logits,
                                const Tensor& targets,
                                int64_t vocab,
                                const Tensor& correct) {
  const int64_t tokens = targets.numel();
  const int64_t columns = logits.size(-1);
  dispatch_gpu(logits.dtype(), "count_correct", [&]<class T>() {
    cuda::launch(count_correct_kernel<T>,
                 device::grid_of_rows(tokens, columns),
                 tokens,
                 columns,
                 vocab,
                 logits.data<T>(),
                 targets.data<int32_t>(),
                 correct.data<int32_t>());
  });
}

}  // namespace halftone
