// Neighbouring elements moved together, 16 bytes at a time where there are as many, and the
// division that finds the place of an element.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dispatch.h"

namespace halftone::device {

inline constexpr int kVectorBytes = 16;

/// values[0, N) = from[0, N). N * sizeof(T) is a multiple of 16 and `from` aligned to it, or N is
/// 1.
template <int N, class T>
__device__ __forceinline__ void load(const T* from, T (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = *from;
  } else {
    constexpr int kVectors = N * static_cast<int>(sizeof(T)) / kVectorBytes;
    uint4 words[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      words[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    memcpy(values, words, sizeof(values));
  }
}

/// to[0, N) = values[0, N), under the same condition.
template <int N, class T>
__device__ __forceinline__ void store(const T (&values)[N], T* to) {
  if constexpr (N == 1) {
    *to = values[0];
  } else {
    constexpr int kVectors = N * static_cast<int>(sizeof(T)) / kVectorBytes;
    uint4 words[kVectors];
    memcpy(words, values, sizeof(values));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      reinterpret_cast<uint4*>(to)[i] = words[i];
    }
  }
}

/// index = the quotient of index and extent; returns the remainder. In 32 bits where both fit.
__device__ __forceinline__ int64_t split(int64_t& index, int64_t extent) {
  if (((index | extent) >> 32) == 0) {
    const auto i = static_cast<uint32_t>(index);
    const auto n = static_cast<uint32_t>(extent);
    index = i / n;
    return i % n;
  }
  const int64_t i = index;
  index = i / extent;
  return i % extent;
}

}  // namespace halftone::device
