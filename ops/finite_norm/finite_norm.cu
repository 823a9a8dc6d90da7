#include "ops/finite_norm/finite_norm.h"

#include "core/cuda/last_block.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/reduce.cuh"
#include "core/math.h"
#include "ops/step_state/transitions.h"

namespace halftone {
namespace {

constexpr int kThreads = kRowLanes;  // a thread is a lane of the row tree
constexpr int kSteps = kRowChunk / kRowLanes;
// Enough to fill a device: a block has a chunk on its way while it looks at another.
constexpr int64_t kBlocks = 528;
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
template <class Element, class T>
__device__ void load_lane(int count, const Element& element, T (&values)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = step * kRowLanes + static_cast<int>(threadIdx.x);
    values[step] = i < count ? element(i) : T{};
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
__device__ void finish(int64_t num_chunks, const Chunk* chunks, StepScalars& scalars) {
  __shared__ float groups[kRowGroups];
  __shared__ long long first;
  if (threadIdx.x == 0) {
    first = INT64_MAX;
  }
  long long own = INT64_MAX;
  float sum = 0.0f;
  for (int64_t begin = 0; begin < num_chunks; begin += kRowChunk) {
    int2 words[kSteps];
    load_lane(
        device::chunk_length(num_chunks, begin),
        [&](int i) { return __ldcg(reinterpret_cast<const int2*>(chunks + begin + i)); },
        words);
    float lane = 0.0f;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t i = begin + step * kRowLanes + static_cast<int>(threadIdx.x);
      if (i < num_chunks && words[step].y != kNone) {
        own = min(own, static_cast<long long>(i * kRowChunk + words[step].y));
      }
      lane += __int_as_float(words[step].x);
    }
    sum += sum_of_lanes(lane, groups);
    __syncthreads();  // before the next groups overwrite these
  }
  if (own != INT64_MAX) {  // `first` was set before a barrier
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
  device::wait_for_inputs();
  const int64_t num_chunks = (n + kRowChunk - 1) / kRowChunk;
  float values[kSteps];
  float next[kSteps];
  const auto load_next = [&](int64_t chunk) {
    if (chunk < num_chunks) {
      const int64_t begin = chunk * kRowChunk;
      load_lane(
          device::chunk_length(n, begin), [&](int i) { return gradients[begin + i]; }, next);
    }
  };
  load_next(blockIdx.x);
  const float unscale = unscale_with(loss, rules, scalars);  // while they come
  for (int64_t chunk = blockIdx.x; chunk < num_chunks; chunk += gridDim.x) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      values[step] = next[step];
    }
    load_next(chunk + gridDim.x);
    look_at(device::chunk_length(n, chunk * kRowChunk), values, unscale, chunks + chunk);
  }
  if (!device::is_last_block(&scalars->arrived)) {
    return;
  }
  if (loss.loss_sum != nullptr && threadIdx.x == 0) {
    loss(rules, *scalars);
  }
  finish(num_chunks, chunks, *scalars);
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
  cuda::launch(
      finite_norm_kernel,
      {.blocks = std::clamp<int64_t>(num_chunks, 1, kBlocks), .threads = kThreads, .early = true},
      n,
      gradients.data<float>(),
      static_cast<Chunk*>(chunks.raw()),
      loss,
      decides,
      state.rules(),
      &state.scalars());
}

}  // namespace halftone
