// The forward pass of cross-entropy on a GPU, a token's row of logits at a time. A long row is read
// once: every warp copies its chunks of the row tree into shared memory, and from there takes
// maximum and sum; with two rows in a multiprocessor, one is copied while the other is summed. Rows
// of which two do not fit are read again, from the L2 cache. Short rows take a warp each.
#pragma once

#include "core/cuda/copy_ahead.cuh"
#include "core/math_near.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"
#include "ops/softmax/softmax_row.cuh"

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
  __device__ void finish(int64_t token, const SoftmaxRow<float>& s) const {
    const float x = widen(logits[token * columns + targets[token]]);
    shift[token] = softmax_shift(s.max);
    inverse_sum[token] = s.inverse_sum;
    loss[token] = math::log(s.sum) - (x - softmax_shift(s.max));
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
  const float max = warp_row_max<float>(losses.vocab, [=](int64_t c) { return widen(row[c]); });
  const float shift = softmax_shift(max);
  const float sum = warp_row_sum<float>(
      losses.vocab, [=](int64_t c) { return math::exp(widen(row[c]) - shift); });
  if (first) {
    losses.finish(token, {max, sum, sum == 0.0f ? 0.0f : math::divide(1.0f, sum)});
  }
}

/// A block takes a token, whatever its alignment, and reads its row twice.
template <class T>
__global__ void block_loss_kernel(TokenLosses<T> losses) {
  extern __shared__ float chunk_sums[];
  __shared__ float warp_maxima[kMaxRowWarps];
  const int64_t token = blockIdx.x;
  if (!losses.is_valid(token)) {  // the whole block
    if (threadIdx.x == 0) {
      losses.finish_invalid(token);
    }
    return;
  }
  const T* row = losses.logits + token * losses.columns;
  const auto s = softmax_row(
      losses.vocab, [row](int64_t c) { return widen(row[c]); }, chunk_sums, warp_maxima);
  if (threadIdx.x == 0) {
    losses.finish(token, s);
  }
}

inline constexpr int kLongRowWarps = 16;

/// A block takes a token, a warp every 16th chunk of its aligned row. Shared memory holds a sum for
/// each chunk, then the row where it is staged; a thread looks only at what it copied itself.
template <bool staged, class T>
__global__ void __launch_bounds__(kLongRowWarps* kWarpSize, 2)
    long_loss_kernel(TokenLosses<T> losses, int num_chunks) {
  using Group = Pack<T, kRowGroup>;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kCopies = sizeof(Group) / kVectorBytes;
  extern __shared__ __align__(16) float chunk_sums[];
  __shared__ float extremes[2][kLongRowWarps];
  auto* stage = reinterpret_cast<Group*>(chunk_sums + (num_chunks + 3) / 4 * 4);
  const int64_t token = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (!losses.is_valid(token)) {  // the whole block
    if (threadIdx.x == 0) {
      losses.finish_invalid(token);
    }
    return;
  }
  const T* row = losses.logits + token * losses.columns;
  const int groups = static_cast<int>((losses.vocab + kRowGroup - 1) / kRowGroup);
  constexpr int kChunkGroups = kRowChunk / kRowGroup;
  // The rows that share a multiprocessor start with different warps: where chunks are few, they
  // would all wait for the same ones.
  const int first_chunk = (warp + static_cast<int>(token)) % kLongRowWarps;
  const auto for_own_chunks = [&](const auto& body) {
    for (int chunk = first_chunk; chunk < num_chunks; chunk += kLongRowWarps) {
      body(chunk, min(groups, (chunk + 1) * kChunkGroups));
    }
  };
  if constexpr (staged) {
    for_own_chunks([&](int chunk, int end) {
      for (int g = chunk * kChunkGroups + lane; g < end; g += kWarpSize) {
        auto* to = reinterpret_cast<uint4*>(&stage[g]);
        const auto* from = reinterpret_cast<const uint4*>(row + int64_t{g} * kRowGroup);
#pragma unroll
        for (int k = 0; k < kCopies; ++k) {
          copy_ahead(to + k, from + k);
        }
      }
    });
    wait_for_copies();
  }
  const auto group_of = [&](int g) {
    if constexpr (staged) {
      return stage[g];
    } else {
      return load_pack<kRowGroup>(row + int64_t{g} * kRowGroup);
    }
  };

  // Elements past the vocabulary, in the last group alone.
  const auto inside = [&](int g, int j) { return int64_t{g} * kRowGroup + j < losses.vocab; };
  float largest = -kInfinity;
  float least = kInfinity;
  for_own_chunks([&](int chunk, int end) {
#pragma unroll 4
    for (int g = chunk * kChunkGroups + lane; g < end; g += kWarpSize) {
      const Group group = group_of(g);
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        if (g < groups - 1 || inside(g, j)) {
          const float x = widen(group.at(j));
          largest = maximum(largest, x);
          least = fminf(least, x);
        }
      }
    }
  });
  largest = warp_max(largest);
  least = -warp_max(-least);
  if (lane == 0) {
    extremes[0][warp] = largest;
    extremes[1][warp] = least;
  }
  __syncthreads();
  largest = warp_max(extremes[0][lane % kLongRowWarps]);
  least = -warp_max(-extremes[1][lane % kLongRowWarps]);
  const float shift = softmax_shift(largest);
  const bool near = least - shift >= math::kExpNear;  // false where there is a NaN

  for_own_chunks([&](int chunk, int end) {
    RowLanes<float> lanes;
    const auto add = [&](int g, const auto& exp) {
      const Group group = group_of(g);
      float terms[kRowGroup];
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        terms[j] = exp(widen(group.at(j)) - shift);
      }
      if (g == groups - 1) {
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          terms[j] = inside(g, j) ? terms[j] : 0.0f;
        }
      }
      lanes.add(terms);
    };
    if (near) {
#pragma unroll 2
      for (int g = chunk * kChunkGroups + lane; g < end; g += kWarpSize) {
        add(g, [](float x) { return math::exp_near(x); });
      }
    } else {
      for (int g = chunk * kChunkGroups + lane; g < end; g += kWarpSize) {
        add(g, [](float x) { return math::exp(x); });
      }
    }
    const float sum = lanes.sum();
    if (lane == 0) {
      chunk_sums[chunk] = sum;
    }
  });
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = chunk_sums[0];
    for (int chunk = 1; chunk < num_chunks; ++chunk) {
      sum += chunk_sums[chunk];
    }
    losses.finish(token, {largest, sum, sum == 0.0f ? 0.0f : math::divide(1.0f, sum)});
  }
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
  const size_t sum_bytes = static_cast<size_t>(num_chunks + 3) / 4 * kVectorBytes;
  const size_t row_bytes =
      static_cast<size_t>(losses.vocab + kRowGroup - 1) / kRowGroup * sizeof(Pack<T, kRowGroup>);
  if (losses.columns % kRowGroup == 0 && is_aligned(losses.logits)) {
    constexpr size_t kMostBytes = 112 * 1024;  // two rows share a multiprocessor
    auto* kernel = long_loss_kernel<true, T>;
    size_t bytes = sum_bytes + row_bytes;
    if (bytes > kMostBytes || !allow_shared_bytes(kernel, bytes, device)) {
      kernel = long_loss_kernel<false, T>;
      bytes = sum_bytes;
    }
    cuda::launch(kernel, {losses.tokens, kLongRowWarps * kWarpSize, bytes}, losses, num_chunks);
    return;
  }
  cuda::launch(block_loss_kernel<T>,
               {losses.tokens,
                std::min(num_chunks, kMaxRowWarps) * kWarpSize,
                static_cast<size_t>(num_chunks) * sizeof(float)},
               losses);
}

}  // namespace halftone::device
