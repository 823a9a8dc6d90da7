// The forward pass of cross-entropy on a GPU. A warp takes a chunk of a row (core/reduce.h), whose
// maximum and sum of exponentials need nothing of the other chunks (loss_row.h): it copies the
// chunk to shared memory and works on it while other warps wait for theirs. A second kernel puts a
// token's chunks together. Rows of one chunk take a warp each, and need no second kernel.
#pragma once

#include "core/cuda/copy_ahead.cuh"
#include "core/math_near.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cross_entropy/loss_row.h"
#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone::device {

inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0; }

template <class T>
struct TokenLosses {
  int64_t tokens;
  int64_t columns;
  int64_t vocab;
  const T* logits;
  const int32_t* targets;
  float* shift;
  float* inverse_sum;
  float* loss;

  __device__ bool is_valid(int64_t token) const {
    return targets[token] >= 0 && targets[token] < vocab;
  }
  /// By one thread: what a valid token is given, and what another.
  __device__ void finish(int64_t token, float max, float sum) const {
    const float x = widen(logits[token * columns + targets[token]]);
    shift[token] = softmax_shift(max);
    inverse_sum[token] = softmax_inverse(sum);
    loss[token] = math::log(sum) - (x - softmax_shift(max));
  }
  __device__ void finish_invalid(int64_t token) const {
    const bool ignored = targets[token] == kIgnoreTarget;
    loss[token] = ignored ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    shift[token] = 0.0f;
    inverse_sum[token] = loss[token];
  }
};

inline constexpr int kShortRowWarps = 4;

/// A warp takes a token.
template <class T>
__global__ void short_loss_kernel(TokenLosses<T> losses) {
  wait_for_inputs();
  const int64_t token =
      int64_t{blockIdx.x} * kShortRowWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  const bool first = threadIdx.x % kWarpSize == 0;
  if (token >= losses.tokens) {
    return;
  }
  if (!losses.is_valid(token)) {
    if (first) {
      losses.finish_invalid(token);
    }
    return;
  }
  const T* row = losses.logits + token * losses.columns;
  const auto c = [&](int j) { return static_cast<int>(threadIdx.x) % kWarpSize * kRowGroup + j; };
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
  if (losses.vocab <= kRowLanes) {  // a thread has its elements of the row tree at once
    float x[kRowGroup];
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      x[j] = c(j) < losses.vocab ? widen(row[c(j)]) : max;
    }
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      max = maximum(max, x[j]);
    }
    max = warp_max(max);
    const float shift = softmax_shift(max);
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      x[j] = c(j) < losses.vocab ? softmax_exp(x[j] - shift) : 0.0f;
    }
    RowLanes<float> lanes;
    lanes.add(x);
    sum = lanes.sum();
  } else {
    max = warp_row_max<float>(losses.vocab, [=](int64_t i) { return widen(row[i]); });
    const float shift = softmax_shift(max);
    sum = warp_row_sum<float>(losses.vocab,
                              [=](int64_t i) { return softmax_exp(widen(row[i]) - shift); });
  }
  if (first) {
    losses.finish(token, max, sum);
  }
}

inline constexpr int kChunkWarps = 4;

/// The least of a warp's values, none of them NaN.
__device__ inline float warp_min(float value) { return -warp_max(-value); }

/// Maximum, NaN if one is NaN, and minimum of pairs of elements of 16 bits, as they are stored.
template <class T>
struct PackedExtremes {
  static constexpr bool kPacked = sizeof(T) == 2;

  __device__ static void update(uint32_t pair, uint32_t& largest, uint32_t& least) {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, BFloat16>) {
      asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(pair));
      asm("min.bf16x2 %0, %0, %1;" : "+r"(least) : "r"(pair));
    } else {
      asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(largest) : "r"(pair));
      asm("min.f16x2 %0, %0, %1;" : "+r"(least) : "r"(pair));
    }
#else
    const auto half = [](uint32_t words, int j) {
      return T{static_cast<uint16_t>(words >> 16 * j)};
    };
    uint32_t larger = 0;
    uint32_t lesser = 0;
    for (int j = 0; j < 2; ++j) {
      const float x = widen(half(pair, j));
      larger |= uint32_t{narrow<T>(maximum(widen(half(largest, j)), x)).bits} << 16 * j;
      lesser |= uint32_t{narrow<T>(fminf(widen(half(least, j)), x)).bits} << 16 * j;
    }
    largest = larger;
    least = lesser;
#endif
  }
};

/// A warp takes a chunk: its maximum and sum, to parts[chunk][token]. An aligned row is staged in
/// shared memory, another is read twice.
template <bool aligned, class T>
__global__ void __launch_bounds__(kChunkWarps* kWarpSize)
    chunk_loss_kernel(TokenLosses<T> losses, int num_chunks, float2* parts) {
  using Group = Pack<T, kRowGroup>;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kCopies = sizeof(Group) / kVectorBytes;
  constexpr int kGroups = kRowChunk / kRowGroup;
  extern __shared__ __align__(16) uint4 stage[];  // [warp][group][copy]
  wait_for_inputs();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t task = int64_t{blockIdx.x} * kChunkWarps + warp;
  const int64_t token = task / num_chunks;
  const int chunk = static_cast<int>(task % num_chunks);
  if (token >= losses.tokens || !losses.is_valid(token)) {
    return;
  }
  const int64_t begin = int64_t{chunk} * kRowChunk;
  const int count = chunk_length(losses.vocab, begin);
  const T* elements = losses.logits + token * losses.columns + begin;
  const int groups = (count + kRowGroup - 1) / kRowGroup;
  uint4* own = stage + warp * kGroups * kCopies;
  if constexpr (aligned) {
    for (int unit = lane; unit < groups * kCopies; unit += kWarpSize) {
      copy_ahead(own + unit, reinterpret_cast<const uint4*>(elements) + unit);
    }
    wait_for_copies();
    __syncwarp();
  }
  const auto group_of = [&](int g) {
    Group group{};
    if constexpr (aligned) {
      group = load_pack<kRowGroup>(reinterpret_cast<const T*>(own + g * kCopies));
    } else {
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        const int i = g * kRowGroup + j;
        group.set(j, i < count ? elements[i] : T{});
      }
    }
    return group;
  };

  float largest = -kInfinity;
  float least = kInfinity;
  const int whole = count / kRowGroup;  // groups; the one behind them is looked at by element
  if constexpr (PackedExtremes<T>::kPacked) {
    const auto both = [](T value) { return value.bits | uint32_t{value.bits} << 16; };
    uint32_t high = both(narrow<T>(-kInfinity));
    uint32_t low = both(narrow<T>(kInfinity));
#pragma unroll 4
    for (int g = lane; g < whole; g += kWarpSize) {
      const Group group = group_of(g);
#pragma unroll
      for (const uint32_t pair : group.words) {
        PackedExtremes<T>::update(pair, high, low);
      }
    }
    Pack<T, 2> highs{{high}};
    Pack<T, 2> lows{{low}};
    largest = maximum(widen(highs.at(0)), widen(highs.at(1)));
    least = fminf(widen(lows.at(0)), widen(lows.at(1)));
  } else {
#pragma unroll 4
    for (int g = lane; g < whole; g += kWarpSize) {
      const Group group = group_of(g);
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        largest = maximum(largest, widen(group.at(j)));
        least = fminf(least, widen(group.at(j)));
      }
    }
  }
  if (whole < groups && whole % kWarpSize == lane) {
    const Group group = group_of(whole);
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      if (whole * kRowGroup + j < count) {
        largest = maximum(largest, widen(group.at(j)));
        least = fminf(least, widen(group.at(j)));
      }
    }
  }
  largest = warp_max(largest);
  least = warp_min(least);
  const float shift = softmax_shift(largest);

  RowLanes<float> lanes;
  const auto add = [&](int g, const auto& exp) {
    const Group group = group_of(g);
    float terms[kRowGroup];
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      terms[j] = exp(widen(group.at(j)) - shift);
    }
    if (g == whole) {
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        terms[j] = g * kRowGroup + j < count ? terms[j] : 0.0f;
      }
    }
    lanes.add(terms);
  };
  if (least - shift >= math::kExpNear) {  // false where there is a NaN
#pragma unroll 2
    for (int g = lane; g < groups; g += kWarpSize) {
      add(g, [](float x) { return math::exp_near(x); });
    }
  } else {
    for (int g = lane; g < groups; g += kWarpSize) {
      add(g, [](float x) { return math::exp(x); });
    }
  }
  const float sum = lanes.sum();
  if (lane == 0) {
    parts[chunk * losses.tokens + token] = {largest, sum};
  }
}

/// A thread puts a token's chunks together.
template <class T>
__global__ void join_losses_kernel(TokenLosses<T> losses, int num_chunks, const float2* parts) {
  wait_for_inputs();
  const int64_t token = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (token >= losses.tokens) {
    return;
  }
  if (!losses.is_valid(token)) {
    losses.finish_invalid(token);
    return;
  }
  const auto part = [&](int chunk) {
    const float2 p = parts[chunk * losses.tokens + token];
    return LossPart<float>{p.x, p.y};
  };
  const LossPart<float> row = join_parts<float>(num_chunks, part);
  losses.finish(token, row.max, row.sum);
}

template <class T>
void launch_losses(const TokenLosses<T>& losses, Device device) {
  const auto num_chunks = static_cast<int>((losses.vocab + kRowChunk - 1) / kRowChunk);
  if (num_chunks == 1) {
    cuda::launch(short_loss_kernel<T>,
                 {.blocks = cuda::blocks_for(losses.tokens, kShortRowWarps),
                  .threads = kShortRowWarps * kWarpSize,
                  .early = true},
                 losses);
    return;
  }
  const Shape shape{num_chunks, losses.tokens, 2};
  const Tensor workspace = Tensor::empty(shape, DType::f32, device, MemoryCategory::workspace);
  auto* parts = static_cast<float2*>(workspace.raw());
  constexpr size_t kStageBytes = kChunkWarps * kRowChunk * sizeof(T);
  const bool aligned = losses.columns % kRowGroup == 0 && is_aligned(losses.logits) &&
                       allow_shared_bytes(chunk_loss_kernel<true, T>, kStageBytes, device);
  cuda::launch(aligned ? chunk_loss_kernel<true, T> : chunk_loss_kernel<false, T>,
               {.blocks = (losses.tokens * num_chunks + kChunkWarps - 1) / kChunkWarps,
                .threads = kChunkWarps * kWarpSize,
                .shared_bytes = aligned ? kStageBytes : 0,
                .early = true},
               losses,
               num_chunks,
               parts);
  constexpr int kJoinThreads = 64;
  cuda::launch(join_losses_kernel<T>,
               {.blocks = cuda::blocks_for(losses.tokens, kJoinThreads),
                .threads = kJoinThreads,
                .early = true},
               losses,
               num_chunks,
               static_cast<const float2*>(parts));
}

}  // namespace halftone::device
