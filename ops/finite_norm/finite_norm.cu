#include "ops/finite_norm/finite_norm.h"

#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

constexpr int kThreads = 256;
constexpr int kFinishThreads = 512;
constexpr int64_t kNone = INT64_MAX;

// A warp takes a chunk: the sum of its squares, and its first non-finite element (or kNone).
__global__ void chunks_kernel(int64_t n,
                              const float* gradients,
                              const StepScalars* scalars,
                              float* sums,
                              int64_t* first_non_finite) {
  const float unscale = scalars->unscale;
  const int64_t chunks = (n + kRowChunk - 1) / kRowChunk;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / device::kWarpSize);
  for (int64_t chunk = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / device::kWarpSize;
       chunk < chunks;
       chunk += warps) {
    const int64_t begin = chunk * kRowChunk;
    int first = INT32_MAX;
    const float sum = device::warp_chunk_sum<float>(device::chunk_length(n, begin), [&](int64_t i) {
      const float u = gradients[begin + i] * unscale;
      if ((std::bit_cast<uint32_t>(u) & 0x7fffffffu) >= 0x7f800000u) {
        first = min(first, static_cast<int>(i));
      }
      return u * u;
    });
    first = __reduce_min_sync(device::kFullWarp, first);
    if (threadIdx.x % device::kWarpSize == 0) {
      sums[chunk] = sum;
      first_non_finite[chunk] = first == INT32_MAX ? kNone : begin + first;
    }
  }
}

// One block: the chunks' sums are the elements of a row.
__global__ void norm_kernel(int64_t chunks,
                            const float* sums,
                            const int64_t* first_non_finite,
                            StepScalars* scalars) {
  extern __shared__ float chunk_sums[];
  __shared__ long long first;
  if (threadIdx.x == 0) {
    first = kNone;
  }
  __syncthreads();
  int64_t own = kNone;
  for (int64_t chunk = threadIdx.x; chunk < chunks; chunk += kFinishThreads) {
    own = min(own, first_non_finite[chunk]);
  }
  if (own != kNone) {
    atomicMin(&first, static_cast<long long>(own));
  }
  const float sum = device::block_row_sum<float>(
      chunks, [sums](int64_t chunk) { return sums[chunk]; }, chunk_sums);
  if (threadIdx.x == 0) {
    scalars->first_non_finite = first == kNone ? -1 : first;
    scalars->grad_norm = math::sqrt(sum);
  }
}

}  // namespace

void detail::finite_norm_cuda(const Tensor& gradients, StepState& state) {
  const int64_t n = gradients.numel();
  const int64_t chunks = (n + kRowChunk - 1) / kRowChunk;
  const Device device = gradients.device();
  constexpr MemoryCategory kWorkspace = MemoryCategory::workspace;
  const Tensor sums = Tensor::empty({chunks}, DType::f32, device, kWorkspace);
  const Tensor first = Tensor::empty({chunks}, DType::i64, device, kWorkspace);
  cuda::launch(chunks_kernel,
               {cuda::blocks_for(chunks, kThreads / device::kWarpSize), kThreads},
               n,
               gradients.data<float>(),
               &state.scalars(),
               sums.data<float>(),
               first.data<int64_t>());
  cuda::launch(norm_kernel,
               {1, kFinishThreads, device::grid_of_rows(1, chunks).shared_bytes},
               chunks,
               sums.data<float>(),
               first.data<int64_t>(),
               &state.scalars());
}

}  // namespace halftone
