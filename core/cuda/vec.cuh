// Neighbouring elements moved together, 16 bytes at a time where there are as many, and the
// division that finds the place of an element.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dispatch.h"

namespace halftone::device {

inline constexpr int kVectorBytes = 16;

namespace detail {

/// The widest type that N elements of T are a multiple of.
template <int kBytes>
using VectorOf = std::
    conditional_t<kBytes % 16 == 0, uint4, std::conditional_t<kBytes % 8 == 0, uint2, uint32_t>>;

}  // namespace detail

/// values[0, N) = from[0, N). N is 1, or N * sizeof(T) a multiple of 4 and `from` aligned to it (to
/// 16 at most).
template <int N, class T>
__device__ __forceinline__ void load(const T* from, T (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = *from;
  } else {
    using Vector = detail::VectorOf<N* static_cast<int>(sizeof(T))>;
    constexpr int kVectors = static_cast<int>(sizeof(values) / sizeof(Vector));
    static_assert(kVectors * sizeof(Vector) == sizeof(values));
    Vector words[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      words[i] = reinterpret_cast<const Vector*>(from)[i];
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
    using Vector = detail::VectorOf<N* static_cast<int>(sizeof(T))>;
    constexpr int kVectors = static_cast<int>(sizeof(values) / sizeof(Vector));
    static_assert(kVectors * sizeof(Vector) == sizeof(values));
    Vector words[kVectors];
    memcpy(words, values, sizeof(values));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      reinterpret_cast<Vector*>(to)[i] = words[i];
    }
  }
}

/// N neighbours, kept as words: as separate elements of 16 bits they would take a register each.
template <class T, int N>
struct Pack {
  uint32_t words[N * static_cast<int>(sizeof(T)) / 4];

  __device__ __forceinline__ T at(int j) const {
    if constexpr (sizeof(T) == 2) {
      return T{static_cast<uint16_t>(words[j / 2] >> (j % 2 * 16))};
    } else {
      return std::bit_cast<T>(words[j]);
    }
  }
  /// at(j) = value, where all of the pack is zero before or set in ascending order.
  __device__ __forceinline__ void set(int j, T value) {
    if constexpr (sizeof(T) == 2) {
      words[j / 2] =
          j % 2 == 0 ? value.bits : words[j / 2] | static_cast<uint32_t>(value.bits) << 16;
    } else {
      words[j] = std::bit_cast<uint32_t>(value);
    }
  }
};

/// The pack at `from`, aligned to 16 bytes or to its size.
template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  Pack<T, N> pack;
  load(reinterpret_cast<const uint32_t*>(from), pack.words);
  return pack;
}
template <int N, class T>
__device__ __forceinline__ void store_pack(const Pack<T, N>& pack, T* to) {
  store(pack.words, reinterpret_cast<uint32_t*>(to));
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
