#include "core/cuda/launch.cuh"
#include "ops/gather_windows/gather_windows.h"

namespace halftone::detail {
namespace {

constexpr int kThreads = 256;

// A block takes a row at a time; every thread works out where it starts, which is cheaper than
// telling each other.
template <class Start>
__global__ void __launch_bounds__(kThreads) gather_windows_kernel(const int32_t* tokens,
                                                                  Start start,
                                                                  int64_t rows,
                                                                  int64_t length,
                                                                  int32_t* inputs,
                                                                  int32_t* targets) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int32_t* from = tokens + start(row);
    for (int64_t t = threadIdx.x; t < length; t += kThreads) {
      inputs[row * length + t] = from[t];
      targets[row * length + t] = from[t + 1];
    }
  }
}

}  // namespace

template <class Start>
void gather_windows_cuda(const Tensor& tokens, const Start& start, const TokenBatch& batch) {
  const int64_t rows = batch.inputs.size(0);
  cuda::launch(gather_windows_kernel<Start>,
               {cuda::blocks_for(rows, 1), kThreads},
               tokens.data<int32_t>(),
               start,
               rows,
               batch.inputs.size(1),
               batch.inputs.data<int32_t>(),
               batch.targets.data<int32_t>());
}

template void gather_windows_cuda<DrawnStart>(const Tensor&, const DrawnStart&, const TokenBatch&);
template void gather_windows_cuda<EvenStart>(const Tensor&, const EvenStart&, const TokenBatch&);

}  // namespace halftone::detail
