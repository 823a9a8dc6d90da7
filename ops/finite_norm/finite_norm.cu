#include "ops/finite_norm/finite_norm.h"

#include "core/cuda/last_block.cuh"
#include "ops/reduce/trees.cuh"
#include "ops/step_state/transitions.h"

namespace halftone {
namespace {

constexpr int kThreads = kRowLanes;  // a thread is a lane of the row tree
constexpr int kSteps = kRowChunk / kRowLanes;
constexpr int64_t kBlocks = 1024;  // enough to fill a device; more would only have to be counted
constexpr int64_t kNone = INT64_MAX;

// What a chunk's block leaves behind: the sum of its squares, and its first non-finite element.
struct Chunks {
  float* sums;
  int64_t* first_non_finite;  // or kNone
};

// The chunk's lanes, one a thread, met as core/reduce.h says; thread 0 has the sum.
__device__ float sum_of_lanes(float lane, float* groups) {
#pragma unroll
  for (int stride = kRowGroup / 2; stride > 0; stride /= 2) {
    lane += __shfl_xor_sync(device::kFullWarp, lane, stride);
  }
  if (threadIdx.x % kRowGroup == 0) {
    groups[threadIdx.x / kRowGroup] = lane;
  }
  __syncthreads();
  float sum = groups[threadIdx.x % kRowGroups];
#pragma unroll
  for (int stride = kRowGroups / 2; stride > 0; stride /= 2) {
    sum += __shfl_xor_sync(device::kFullWarp, sum, stride);
  }
  return sum;
}

__device__ void look_at(
    int64_t n, int64_t chunk, const float* gradients, float unscale, Chunks to) {
  __shared__ float groups[kRowGroups];
  __shared__ int first_of_warp[kThreads / device::kWarpSize];
  const int64_t begin = chunk * kRowChunk;
  const int count = device::chunk_length(n, begin);
  float values[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {  // all on their way before the first is used
    const int i = step * kRowLanes + static_cast<int>(threadIdx.x);
    values[step] = i < count ? gradients[begin + i] : 0.0f;
  }
  float lane = 0.0f;
  int first = INT32_MAX;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float u = values[step] * unscale;
    lane += u * u;
    if ((std::bit_cast<uint32_t>(u) & 0x7fffffffu) >= 0x7f800000u) {
      first = min(first, step * kRowLanes + static_cast<int>(threadIdx.x));
    }
  }
  first = __reduce_min_sync(device::kFullWarp, first);
  if (threadIdx.x % device::kWarpSize == 0) {
    first_of_warp[threadIdx.x / device::kWarpSize] = first;
  }
  const float sum = sum_of_lanes(lane, groups);
  if (threadIdx.x == 0) {
    for (const int of_warp : first_of_warp) {
      first = min(first, of_warp);
    }
    to.sums[chunk] = sum;
    to.first_non_finite[chunk] = first == INT32_MAX ? kNone : begin + first;
  }
  __syncthreads();  // before the next chunk's groups overwrite this one's
}

// The chunks' sums are the elements of a row; other blocks wrote them, so they are read behind L1.
__device__ void finish(int64_t chunks, Chunks from, float* chunk_sums, StepScalars& scalars) {
  __shared__ long long first;
  if (threadIdx.x == 0) {
    first = kNone;
  }
  __syncthreads();
  int64_t own = kNone;
  for (int64_t chunk = threadIdx.x; chunk < chunks; chunk += kThreads) {
    own = min(own, __ldcg(from.first_non_finite + chunk));
  }
  if (own != kNone) {
    atomicMin(&first, static_cast<long long>(own));
  }
  const float sum = device::block_row_sum<float>(
      chunks, [&](int64_t chunk) { return __ldcg(from.sums + chunk); }, chunk_sums);
  if (threadIdx.x == 0) {
    scalars.first_non_finite = first == kNone ? -1 : first;
    scalars.grad_norm = math::sqrt(sum);
  }
}

// With the last micro-batch's loss, which only the last block adds for good.
__device__ float unscale_with(const detail::AddLoss& loss,
                              const StepRules& rules,
                              const StepScalars* scalars) {
  if (loss.loss_sum == nullptr) {
    return scalars->unscale;
  }
  StepScalars s = *scalars;
  loss(rules, s);
  return s.unscale;
}

// A block takes a chunk; the last one finishes, and decides.
__global__ void __launch_bounds__(kThreads) finite_norm_kernel(int64_t n,
                                                               const float* gradients,
                                                               Chunks chunks_of,
                                                               detail::AddLoss loss,
                                                               bool decides,
                                                               StepRules rules,
                                                               StepScalars* scalars) {
  extern __shared__ float chunk_sums[];
  device::wait_for_inputs();
  const float unscale = unscale_with(loss, rules, scalars);
  const int64_t chunks = (n + kRowChunk - 1) / kRowChunk;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    look_at(n, chunk, gradients, unscale, chunks_of);
  }
  if (!device::is_last_block(&scalars->arrived)) {
    return;
  }
  if (loss.loss_sum != nullptr && threadIdx.x == 0) {
    loss(rules, *scalars);
  }
  finish(chunks, chunks_of, chunk_sums, *scalars);
  if (decides && threadIdx.x == 0) {
    detail::DecideStep{}(rules, *scalars);
  }
}

}  // namespace

void detail::finite_norm_cuda(const Tensor& gradients,
                              StepState& state,
                              const AddLoss& loss,
                              bool decides) {
  const int64_t n = gradients.numel();
  const int64_t chunks = (n + kRowChunk - 1) / kRowChunk;
  const Device device = gradients.device();
  constexpr MemoryCategory kWorkspace = MemoryCategory::workspace;
  const Tensor sums = Tensor::empty({chunks}, DType::f32, device, kWorkspace);
  const Tensor first = Tensor::empty({chunks}, DType::i64, device, kWorkspace);
  cuda::launch(finite_norm_kernel,
               {.blocks = std::clamp<int64_t>(chunks, 1, kBlocks),
                .threads = kThreads,
                .shared_bytes = device::grid_of_rows(1, chunks).shared_bytes,
                .early = true},
               n,
               gradients.data<float>(),
               Chunks{sums.data<float>(), first.data<int64_t>()},
               loss,
               decides,
               state.rules(),
               &state.scalars());
}

}  // namespace halftone
