#include "ops/finite_norm/finite_norm.h"

#include "core/cuda/last_block.cuh"
#include "ops/reduce/trees.cuh"
#include "ops/step_state/transitions.h"

namespace halftone {
namespace {

constexpr int kThreads = kRowLanes;  // a thread is a lane of the row tree
constexpr int kSteps = kRowChunk / kRowLanes;
constexpr int64_t kBlocks = 1024;  // enough to fill a device; more would only have to be counted
constexpr int32_t kNone = INT32_MAX;

// What a chunk's block leaves behind: the sum of its squares, and where in the chunk its first
// non-finite element is, or kNone.
struct alignas(8) Chunk {
  float sum;
  int32_t first_non_finite;
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

// An element of a chunk for each step of its lane, all on their way before the first is used.
__device__ void load_lane(int count, const float* chunk, float (&values)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = step * kRowLanes + static_cast<int>(threadIdx.x);
    values[step] = i < count ? chunk[i] : 0.0f;
  }
}

__device__ void look_at(int count, const float (&values)[kSteps], float unscale, Chunk* to) {
  __shared__ float groups[kRowGroups];
  __shared__ int32_t first_of_warp[kThreads / device::kWarpSize];
  float lane = 0.0f;
  int32_t first = kNone;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = step * kRowLanes + static_cast<int>(threadIdx.x);
    const float u = i < count ? values[step] * unscale : 0.0f;
    lane += u * u;
    if ((std::bit_cast<uint32_t>(u) & 0x7fffffffu) >= 0x7f800000u) {
      first = min(first, i);
    }
  }
#pragma unroll
  for (int stride = device::kWarpSize / 2; stride > 0; stride /= 2) {
    first = min(first, __shfl_xor_sync(device::kFullWarp, first, stride));
  }
  if (threadIdx.x % device::kWarpSize == 0) {
    first_of_warp[threadIdx.x / device::kWarpSize] = first;
  }
  const float sum = sum_of_lanes(lane, groups);
  if (threadIdx.x == 0) {
    for (const int32_t of_warp : first_of_warp) {
      first = min(first, of_warp);
    }
    *to = {sum, first};
  }
  __syncthreads();  // before the next chunk's groups overwrite this one's
}

// The chunks' sums are the elements of a row; other blocks wrote them, so they are read behind L1.
__device__ void finish(int64_t num_chunks,
                       const Chunk* chunks,
                       float* chunk_sums,
                       StepScalars& scalars) {
  __shared__ long long first;
  if (threadIdx.x == 0) {
    first = INT64_MAX;
  }
  long long own = INT64_MAX;
  const float sum = device::block_row_sum<float>(
      num_chunks,
      [&](int64_t i) {
        const int2 words = __ldcg(reinterpret_cast<const int2*>(chunks + i));
        if (words.y != kNone) {
          own = min(own, static_cast<long long>(i * kRowChunk + words.y));
        }
        return __int_as_float(words.x);
      },
      chunk_sums);
  if (own != INT64_MAX) {  // `first` was set before a barrier in there
    atomicMin(&first, own);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    scalars.first_non_finite = first == INT64_MAX ? -1 : first;
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
                                                               Chunk* chunks,
                                                               detail::AddLoss loss,
                                                               bool decides,
                                                               StepRules rules,
                                                               StepScalars* scalars) {
  extern __shared__ float chunk_sums[];
  device::wait_for_inputs();
  const int64_t num_chunks = (n + kRowChunk - 1) / kRowChunk;
  float unscale = 0.0f;
  for (int64_t chunk = blockIdx.x; chunk < num_chunks; chunk += gridDim.x) {
    float values[kSteps];
    const int64_t begin = chunk * kRowChunk;
    const int count = device::chunk_length(n, begin);
    load_lane(count, gradients + begin, values);
    if (chunk == blockIdx.x) {  // while they come
      unscale = unscale_with(loss, rules, scalars);
    }
    look_at(count, values, unscale, chunks + chunk);
  }
  if (!device::is_last_block(&scalars->arrived)) {
    return;
  }
  if (loss.loss_sum != nullptr && threadIdx.x == 0) {
    loss(rules, *scalars);
  }
  finish(num_chunks, chunks, chunk_sums, *scalars);
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
  const int64_t num_chunks = (n + kRowChunk - 1) / kRowChunk;
  static_assert(sizeof(Chunk) == sizeof(int64_t));
  const Tensor chunks =
      Tensor::empty({num_chunks}, DType::i64, gradients.device(), MemoryCategory::workspace);
  cuda::launch(finite_norm_kernel,
               {.blocks = std::clamp<int64_t>(num_chunks, 1, kBlocks),
                .threads = kThreads,
                .shared_bytes = device::grid_of_rows(1, num_chunks).shared_bytes,
                .early = true},
               n,
               gradients.data<float>(),
               static_cast<Chunk*>(chunks.raw()),
               loss,
               decides,
               state.rules(),
               &state.scalars());
}

}  // namespace halftone
