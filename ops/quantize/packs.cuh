// A matrix read and written by packs: 16 bytes of neighbours of a row, or the part of them that
// lies inside; and the largest magnitudes among packs, compared as bits, where NaN is the largest.
#pragma once

#include "ops/quantize/encode.cuh"

namespace halftone::device {

template <class T>
inline constexpr int kPackOf = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct PackedMatrix {
  static constexpr int kPack = kPackOf<T>;
  const T* x;
  int64_t rows, columns;
  bool aligned;  // whole packs can be moved as such, at both ends

  /// Elements of a row that a pack at `column` holds; at most 0 outside.
  __device__ int inside(int64_t column) const {
    return static_cast<int>(min(columns - column, int64_t{kPack}));
  }

  /// The pack that starts at element `at` of an aligned matrix; zeros unless it lies inside.
  __device__ Pack<T, kPack> load_aligned(int64_t at, bool lies_inside) const {
    return lies_inside ? load_pack<kPack>(x + at) : Pack<T, kPack>{};
  }

  /// `count` elements from element `at` on: the pack's, or fewer at the end of a row. Zeros follow.
  __device__ Pack<T, kPack> load(int64_t at, int count) const {
    if (aligned) {
      return load_aligned(at, count > 0);
    }
    Pack<T, kPack> pack{};
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      if (j < count) {
        pack.set(j, x[at + j]);
      }
    }
    return pack;
  }

  /// Stores codes to a matrix of the same shape.
  template <class Code>
  __device__ void store(int64_t at,
                        int count,
                        const uint32_t (&words)[kWordsOf<Code, kPack>],
                        Code* out) const {
    Code* to = out + at;
    if (aligned) {
      if (count > 0) {
        device::store(words, reinterpret_cast<uint32_t*>(to));
      }
      return;
    }
    Code codes[kPack];
    memcpy(codes, words, sizeof(words));
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      if (j < count) {
        to[j] = codes[j];
      }
    }
  }
};

/// The largest magnitudes at each place of a pack.
template <class T>
class PackMagnitudes {
 public:
  static constexpr int kPack = kPackOf<T>;

  __device__ void add(const Pack<T, kPack>& pack) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words_[k] = larger(words_[k], pack.words[k] & kMask);
    }
  }

  /// FP32 bits of the largest at place j, and of the largest of all.
  __device__ uint32_t at(int j) const {
    return kPairs ? widened(words_[j / 2] >> (j % 2 * 16)) : words_[j];
  }
  __device__ uint32_t largest() const {
    const uint32_t word = larger(larger(words_[0], words_[1]), larger(words_[2], words_[3]));
    return kPairs ? widened(max(word & 0xffffu, word >> 16)) : word;
  }

 private:
  static constexpr bool kPairs = sizeof(T) == 2;
  static constexpr uint32_t kMask = kPairs ? 0x7fff7fffu : 0x7fffffffu;

  __device__ static uint32_t larger(uint32_t a, uint32_t b) {
    return kPairs ? __vmaxu2(a, b) : max(a, b);
  }
  __device__ static uint32_t widened(uint32_t bits) {
    if constexpr (kPairs) {
      return std::bit_cast<uint32_t>(widen(T{static_cast<uint16_t>(bits)}));
    } else {
      return bits;
    }
  }

  uint32_t words_[4] = {};
};

/// The largest among `lanes` neighbours of a warp, a power of two, for each of them.
__device__ inline uint32_t largest_of_lanes(uint32_t value, int lanes) {
  for (int stride = lanes / 2; stride > 0; stride /= 2) {
    value = max(value, __shfl_xor_sync(kFullWarp, value, stride));
  }
  return value;
}

}  // namespace halftone::device
