// Scaled and promoted products in the mma kernel: what the Tensor Core adds up within an interval
// (gemm.h, interval_end) is multiplied by the scales and added to an FP32 sum. The scales of the
// tile's rows and columns travel beside the stages, in a ring that is one longer: a warp may still
// read them when another copies to the stage they came with.
#pragma once

#include "ops/gemm/gemm_sm80_tiles.cuh"

namespace halftone::detail {

/// A place in K that goes on by instructions, and where the interval around it ends.
class IntervalWalk {
 public:
  __device__ IntervalWalk(int64_t block_a, int64_t block_b, int promote, int begin, int end)
      : k_(begin),
        end_(end),
        promote_(promote > 0 ? promote : kNever),
        block_a_(static_cast<int>(min(block_a, int64_t{kNever}))),
        block_b_(static_cast<int>(min(block_b, int64_t{kNever}))),
        stop_a_((begin / block_a_ + 1) * block_a_),
        stop_b_((begin / block_b_ + 1) * block_b_) {
    start(begin);
  }

  /// Goes on by `depth`. Whether an interval ended there.
  __device__ __forceinline__ bool ends_after(int depth) {
    k_ += depth;
    if (k_ < stop_ || begin_ >= end_) {
      return false;
    }
    stop_a_ += stop_a_ == stop_ ? block_a_ : 0;
    stop_b_ += stop_b_ == stop_ ? block_b_ : 0;
    start(stop_);
    return true;
  }

 private:
  static constexpr int kNever = 1 << 30;  // K is below it

  __device__ __forceinline__ void start(int k) {
    begin_ = k;
    stop_ = min(min(end_, k + promote_), min(stop_a_, stop_b_));
  }

  int k_, end_;
  int promote_, block_a_, block_b_;
  int stop_a_, stop_b_;  // the ends of the blocks of scales
  int begin_, stop_;     // of the interval
};

/// The second set of sums, and the scales on their way to it.
template <class T, bool kPromoted = (T::kInterval > 0)>
class Promotion {
 public:
  static constexpr int kBlocksN = T::kWarpN / 8;
  using Sums = float[4][kBlocksN][4];
  static constexpr int kSlots = T::kSlices / T::kInterval;  // of a stage
  static constexpr int kBytes = (T::kStages + 1) * kSlots * T::kThreads * 4;

  /// `ring`: kBytes of shared memory.
  __device__ Promotion(float* ring,
                       const MmaOperand& a,
                       const MmaOperand& b,
                       int promote,
                       int m0,
                       int n0,
                       int M,
                       int N,
                       int warp_m,
                       int warp_n,
                       int k_begin,
                       int k_end)
      : row_(warp_m + threadIdx.x % 32 / 4),
        column_(T::kM + warp_n + threadIdx.x % 4 * 2),
        walk_(a.scales.block_k,
              b.scales.block_k,
              promote,
              k_begin,
              k_begin + (k_end - k_begin + kDepth - 1) / kDepth * kDepth),
        ring_(ring) {
    static_assert(T::kM + T::kN == T::kThreads, "a thread copies one row's or one column's scales");
    const int thread = static_cast<int>(threadIdx.x);
    const bool is_a = thread < T::kM;
    const GemmScales& scales = is_a ? a.scales : b.scales;
    const int mn = is_a ? min(m0 + thread, M - 1) : min(n0 + thread - T::kM, N - 1);
    from_ = scales.data;
    left_ = block_k_ = static_cast<int>(min(scales.block_k, int64_t{1} << 30));
    if (from_ != nullptr) {
      stride_k_ = scales.stride_k;
      from_ += mn / scales.block_mn * scales.stride_mn + k_begin / block_k_ * stride_k_;
      left_ -= k_begin % block_k_;
    } else {
      for (int slot = 0; slot < kBytes / 4; slot += T::kThreads) {
        ring_[slot + threadIdx.x] = 1.0f;
      }
    }
  }

  /// Copies the scales of the intervals that end in the next stage, which is `ahead` of the one
  /// that is multiplied.
  __device__ __forceinline__ void copy(int ahead) {
#pragma unroll
    for (int slice = T::kInterval - 1; slice < T::kSlices; slice += T::kInterval) {
      if (walk_.ends_after(kDepth)) {
        closing_ |= 1u << (ahead * T::kSlices + slice);
        if (from_ != nullptr) {
          sm80::copy_async(ring_ + (write_ + slice / T::kInterval) * T::kThreads + threadIdx.x,
                           from_);
        }
      }
      left_ -= kDepth;
      if (left_ == 0) {
        from_ += stride_k_;
        left_ = block_k_;
      }
    }
    write_ = next(write_);
  }

  /// Before the products of slice `slice` are added to fragment (i, j): if an interval ended with
  /// the slice before, sum = fma(acc, scale, sum), and acc starts again from zero. Fragment by
  /// fragment, so that the Tensor Core multiplies meanwhile.
  __device__ __forceinline__ void fold_if_due(float (&acc)[4], int slice, int i, int j) {
    if (slice % T::kInterval == 0) {
      fold_if_due(acc, i, j);
    }
  }
  /// Reads the scales of the interval that ends with slice `slice` of the stage multiplied. Before
  /// its products, unless these still need the ones before.
  __device__ __forceinline__ void begin_slice(int slice) {
    if (T::kInterval > 1) {
      read(slice);
    }
  }
  /// After the products of slice `slice`.
  __device__ __forceinline__ void end_slice(int slice) {
    if (T::kInterval == 1) {
      read(slice);
    }
    if (slice + 1 == T::kSlices) {
      closing_ >>= T::kSlices;
      read_ = next(read_);
    }
  }
  /// After the last slice of all.
  __device__ Sums& finish(Sums& acc) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
        fold_if_due(acc[i][j], i, j);
      }
    }
    return sum_;
  }

 private:
  static __device__ __forceinline__ int next(int at) {
    return at == T::kStages * kSlots ? 0 : at + kSlots;
  }

  __device__ __forceinline__ void read(int slice) {
    if ((slice + 1) % T::kInterval != 0) {
      return;
    }
    is_due_ = (closing_ >> slice & 1) != 0;
    if (is_due_) {
      const float* scales = ring_ + (read_ + slice / T::kInterval) * T::kThreads;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scales_a_[i][0] = scales[row_ + 16 * i];
        scales_a_[i][1] = scales[row_ + 16 * i + 8];
      }
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
        const auto pair = *reinterpret_cast<const float2*>(scales + column_ + 8 * j);
        scales_b_[j][0] = pair.x;
        scales_b_[j][1] = pair.y;
      }
    }
  }

  __device__ __forceinline__ void fold_if_due(float (&acc)[4], int i, int j) {
    if (is_due_) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float scale = scales_a_[i][e / 2] * scales_b_[j][e % 2];
        sum_[i][j][e] = __fmaf_rn(acc[e], scale, sum_[i][j][e]);
        acc[e] = 0.0f;
      }
    }
  }

  // Every interval is a multiple of it, if the last one ends as soon after K.
  static constexpr int kDepth = T::kK / T::kSlices * T::kInterval;

  Sums sum_ = {};
  bool is_due_ = false;
  float scales_a_[4][2];  // of the interval that is due
  float scales_b_[kBlocksN][2];
  int row_, column_;   // of the lane, in the scales of a slice
  IntervalWalk walk_;  // in what is copied
  const float* from_;
  int64_t stride_k_ = 0;
  int block_k_;
  int left_;     // of K until from_ goes on
  float* ring_;  // [kStages + 1][kSlots][kThreads]
  int write_ = 0;
  int read_ = 0;
  uint32_t closing_ = 0;  // a bit a slice, from the stage multiplied to the one copied last
};

/// Nothing of the kind: one interval.
template <class T>
class Promotion<T, false> {
 public:
  static constexpr int kBytes = 0;
  template <class... Arguments>
  __device__ explicit Promotion(const Arguments&...) {}
  __device__ void copy(int) {}
  __device__ void fold_if_due(float (&)[4], int, int, int) {}
  __device__ void begin_slice(int) {}
  __device__ void end_slice(int) {}
  template <class Sums>
  __device__ Sums& finish(Sums& acc) {
    return acc;
  }
};

}  // namespace halftone::detail
