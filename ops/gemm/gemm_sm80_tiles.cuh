// How the mma kernel moves operands: from global memory to a stage with cp.async (StageLoader),
// from a stage to registers with ldmatrix (FragmentReader). Half a stage holds 128 bytes of K for
// every row or column of the tile, in the layout of the wgmma kernel: K-major operands as rows of
// 128 bytes, MN-major ones as blocks of 64 MN by 64 K, 16-byte chunks XORed with the row, so that
// neither side meets a bank twice.
#pragma once

#include "core/cuda/mma_sm80.cuh"
#include "ops/gemm/gemm.h"

namespace halftone::detail {

struct MmaOperand {
  const uint8_t* data = nullptr;
  int64_t stride = 0;  // bytes from row to row
  int64_t batch_stride = 0;
  int64_t group_skip = 0;
  GemmScales scales;

  __device__ const uint8_t* matrix(int i, int group) const {
    return data + i * batch_stride + group * group_skip;
  }
};

/// One thread's share of copying an operand's tiles, half a stage at a time: kCopies chunks of 16
/// bytes that lie at fixed distances, in global memory and in the stage, so that a copy costs
/// little more than its instruction. What lies beyond the matrix or the end of K becomes zero.
template <class T, int kMn, bool kMnMajor>
class StageLoader {
 public:
  static constexpr int kCopies = kMn * 8 / T::kThreads;

  /// `base` is the matrix.
  __device__ StageLoader(
      const MmaOperand& x, const uint8_t* base, int mn0, int mn, int k_begin, int k_end) {
    const int chunk = threadIdx.x % 8;
    int row;
    if constexpr (kMnMajor) {
      constexpr int kBlocks = kMn / 64;
      const int block = threadIdx.x / 8 % kBlocks;
      row = threadIdx.x / 8 / kBlocks;  // along K
      const int column = mn0 + block * 64 + chunk * 8;
      from_ = base + (k_begin + row) * x.stride + int64_t{column} * kSize;
      to_ = block * 8192;
      rows_left_ = k_end - k_begin - row;
      bytes_ = max(0, min(16, (mn - column) * kSize));
    } else {
      row = threadIdx.x / 8;
      from_ = base + (mn0 + row) * x.stride + (k_begin + chunk * (16 / kSize)) * int64_t{kSize};
      to_ = 0;
      rows_left_ = mn - mn0 - row;
      k_left_ = k_end - k_begin - chunk * (16 / kSize);
      bytes_ = max(0, min(16, k_left_ * kSize));
    }
    to_ += row * 128 + ((chunk ^ (row % 8)) << 4);
    distance_ = kRowsApart * x.stride;
    step_ = (kMnMajor ? kDepth * x.stride : 128) - kCopies * distance_;
  }

  /// Starts copy i of a half; each in turn.
  __device__ __forceinline__ void copy(uint32_t tile, int i) {
    sm80::copy_async(
        tile + to_ + i * kRowsApart * 128, from_, i * kRowsApart < rows_left_ ? bytes_ : 0);
    from_ += distance_;
  }
  /// On to the next half, after all copies of one.
  __device__ __forceinline__ void advance() {
    from_ += step_;
    if constexpr (kMnMajor) {
      rows_left_ -= kDepth;
    } else {
      k_left_ -= kDepth;
      bytes_ = max(0, min(16, k_left_ * kSize));
    }
  }

 private:
  static constexpr int kSize = sizeof(typename T::In);
  static constexpr int kDepth = 128 / kSize;  // of half a stage
  static constexpr int kRowsApart = kMnMajor ? T::kThreads / 8 / (kMn / 64) : T::kThreads / 8;
  static_assert(kRowsApart % 8 == 0, "the XOR is the same for all copies of a thread");

  const uint8_t* from_;
  int64_t distance_;
  int64_t step_;
  uint32_t to_;
  int rows_left_;   // of the matrix, from the thread's first one
  int k_left_ = 0;  // K-major
  int bytes_;
};

/// A lane's addresses for the ldmatrix of blocks of 16 rows or columns by 32 bytes of K, the first
/// block at `first` of the tile. One of block and slice steps through the chunks of a line of 128
/// bytes, the other through the lines: an XOR and a sum from a constant of the lane.
template <bool kIsA, bool kMnMajor>
class FragmentReader {
 public:
  __device__ explicit FragmentReader(int first) {
    const int lane = threadIdx.x % 32;
    constexpr bool kLinesFirst = kIsA != kMnMajor;  // order of the four 8 x 8 matrices
    const int line = kLinesFirst ? lane % 16 : lane % 8 + lane / 16 * 8;
    const int half = kLinesFirst ? lane / 16 : lane / 8 % 2;
    offset_ = kMnMajor
                  ? first / 64 * 8192 + line * 128 + (((first % 64 / 8 + half) ^ (line % 8)) << 4)
                  : (first + line) * 128 + ((half ^ (line % 8)) << 4);
  }
  /// A's 16 x 32 bytes, or two neighbouring fragments of B: r[0], r[1] and r[2], r[3].
  __device__ __forceinline__ void read(uint32_t tile,
                                       int block,
                                       int slice,
                                       uint32_t (&r)[4]) const {
    const int chunks = kMnMajor ? block : slice;
    const int lines = kMnMajor ? slice : block;
    sm80::ldmatrix_x4<kMnMajor>(tile + (offset_ ^ (chunks << 5)) + lines * 2048, r);
  }

 private:
  uint32_t offset_;
};

}  // namespace halftone::detail
