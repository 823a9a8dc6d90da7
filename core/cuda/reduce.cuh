// The reduction trees of core/reduce.h on the device: the same additions in the same order, hence
// the same bits. Every function is called by whole warps, and every lane gets the result: addition
// is commutative, so a butterfly of shuffles gives all lanes the bits of the tree.
#pragma once

#include <cstdint>
#include <limits>

#include "core/reduce.h"

namespace halftone::device {

inline constexpr unsigned kFullWarp = 0xffffffffu;
inline constexpr int kWarpSize = 32;
static_assert(kRowGroups == kWarpSize, "a thread of the warp is a group of the row tree");

/// The groups of one chunk, one to each thread of a warp. Thread t adds elements 256 s + 8 t to
/// 256 s + 8 t + 7 for s = 0, 1, ...: 16 bytes of a 16-bit type. Elements past the end are left out
/// or added as +0, which is the same.
template <class T>
struct RowLanes {
  T lanes[kRowGroup] = {};

  __device__ void add(const T (&elements)[kRowGroup]) {
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      lanes[j] += elements[j];
    }
  }

  /// The sum of the chunk.
  __device__ T sum() const {
    T sum = group_sum(lanes);
#pragma unroll
    for (int stride = kRowGroups / 2; stride > 0; stride /= 2) {
      sum += __shfl_xor_sync(kFullWarp, sum, stride);
    }
    return sum;
  }
};

/// One chunk of 0 <= count <= 4096 elements by one warp. element(i) is called once for each i.
template <class T, class Element>
__device__ T warp_chunk_sum(int count, Element&& element) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  RowLanes<T> chunk;
  for (int begin = lane * kRowGroup; begin < count; begin += kRowLanes) {
    T elements[kRowGroup];
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      elements[j] = begin + j < count ? element(int64_t{begin + j}) : T(0);
    }
    chunk.add(elements);
  }
  return chunk.sum();
}

/// Elements of the chunk that starts at `begin` in a row of n.
__device__ inline int chunk_length(int64_t n, int64_t begin) {
  return static_cast<int>(n - begin < kRowChunk ? n - begin : kRowChunk);
}

/// A whole row by one warp.
template <class T, class Element>
__device__ T warp_row_sum(int64_t n, Element&& element) {
  T sum = warp_chunk_sum<T>(chunk_length(n, 0), element);
  for (int64_t begin = kRowChunk; begin < n; begin += kRowChunk) {
    sum += warp_chunk_sum<T>(chunk_length(n, begin), [&](int64_t i) { return element(begin + i); });
  }
  return sum;
}

/// A whole row by all warps of a block of one dimension, every thread of which calls it.
/// `chunk_sums` is shared memory for ceil(n / 4096) values; it may be used again after the next
/// __syncthreads().
template <class T, class Element>
__device__ T block_row_sum(int64_t n, Element&& element, T* chunk_sums) {
  const int num_chunks = static_cast<int>((n + kRowChunk - 1) / kRowChunk);
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (int chunk = warp; chunk < num_chunks; chunk += num_warps) {
    const int64_t begin = int64_t{chunk} * kRowChunk;
    const T sum =
        warp_chunk_sum<T>(chunk_length(n, begin), [&](int64_t i) { return element(begin + i); });
    if (threadIdx.x % kWarpSize == 0) {
      chunk_sums[chunk] = sum;
    }
  }
  __syncthreads();
  T sum = num_chunks > 0 ? chunk_sums[0] : T(0);
  for (int chunk = 1; chunk < num_chunks; ++chunk) {
    sum += chunk_sums[chunk];
  }
  return sum;
}

/// The maximum over the lanes of a warp, NaN if one is NaN.
template <class T>
__device__ T warp_max(T value) {
#pragma unroll
  for (int stride = kWarpSize / 2; stride > 0; stride /= 2) {
    value = maximum(value, __shfl_xor_sync(kFullWarp, value, stride));
  }
  return value;
}

/// The maximum of a row by one warp; -infinity for n = 0.
template <class T, class Element>
__device__ T warp_row_max(int64_t n, Element&& element) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t i = threadIdx.x % kWarpSize; i < n; i += kWarpSize) {
    largest = maximum(largest, element(i));
  }
  return warp_max(largest);
}

/// The maximum of a row by all warps of a block of one dimension, every thread of which calls it.
/// `warp_maxima` is shared memory for a value a warp; it may be used again after the next
/// __syncthreads().
template <class T, class Element>
__device__ T block_row_max(int64_t n, Element&& element, T* warp_maxima) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    largest = maximum(largest, element(i));
  }
  largest = warp_max(largest);
  if (lane == 0) {
    warp_maxima[threadIdx.x / kWarpSize] = largest;
  }
  __syncthreads();
  return warp_max(warp_maxima[lane < warps ? lane : 0]);
}

/// The column tree over 16 rows of one column by one thread: element(r) for r in [0, 16), rows from
/// `rows` on counting as +0.
template <class T, class Element>
__device__ T sixteen_row_sum(int64_t rows, Element&& element) {
  T lanes[8];  // rows 8 apart
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    lanes[r] = (r < rows ? element(r) : T(0)) + (r + 8 < rows ? element(r + 8) : T(0));
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// The sum of a panel from its eight sums of 16 rows, `stride` apart in memory: 16, 32, 64 apart.
template <class T>
__device__ T panel_of_sixteens(const T* sums, int stride) {
  const auto at = [&](int i) { return sums[i * stride]; };
  return ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
}

/// The column tree over the 16 rows of an accumulator fragment of mma or wgmma: the thread holds
/// rows g and g + 8 of a column, g = lane / 4. Warps and warpgroups then meet by panel_of_sixteens.
template <class T>
__device__ T fragment_column_sum(T row_g, T row_g8) {
  T sum = row_g + row_g8;
#pragma unroll
  for (int stride = 4; stride < kWarpSize; stride *= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, stride);
  }
  return sum;
}

}  // namespace halftone::device
