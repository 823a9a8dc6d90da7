// The mma kernel (sm_80 and later): block tiles in a ring of shared-memory stages filled by
// cp.async, ldmatrix, mma.sync, eight warps of 64 rows each, two deep and four across. A stage
// holds 128 bytes of K for every row, in the layout of the wgmma kernel: K-major operands as rows
// of 128 bytes, MN-major ones as blocks of 64 MN by 64 K, 16-byte chunks XORed with the row, so
// that ldmatrix meets no bank twice; its transposing form reads MN-major operands, so that all four
// transpositions are address arithmetic. Invariant: the products of one output are added in
// ascending K from zero within an interval (gemm.h, KOrder).
#pragma once

#include "core/cuda/mma_sm80.cuh"
#include "ops/gemm/gemm_epilogue.cuh"

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
  __device__ float scale(int64_t i, int64_t k) const {
    return scales.data == nullptr ? 1.0f
                                  : scales.data[i / scales.block_mn * scales.stride_mn +
                                                k / scales.block_k * scales.stride_k];
  }
};

struct MmaArgs {
  GemmOutput out;
  MmaOperand a;
  MmaOperand b;
  int K = 0;
  int split_k = 0;
  int promote = 0;
  int tiles_m = 0;
  int tiles_n = 0;
  int stages = 3;
  bool direct = false;  // store_fragments instead of finish_fragments
};

template <class In_, int kN_, bool kAmn_, bool kBmn_, bool kPromoted_>
struct MmaTraits {
  using In = In_;
  static constexpr int kM = 128;
  static constexpr int kN = kN_;
  static constexpr bool kAmn = kAmn_;
  static constexpr bool kBmn = kBmn_;
  static constexpr bool kPromoted = kPromoted_;  // intervals: scales, or promotion to FP32
  static constexpr int kThreads = 256;
  static constexpr int kK = 128 / sizeof(In);
  static constexpr int kWarpN = kN / 4;
  static constexpr int kABytes = kM * 128;
  static constexpr int kStageBytes = kABytes + kN * 128;
  static_assert(sizeof(In) == 2 || !(kAmn || kBmn), "tf32 operands are K-major");
};

/// One thread's share of copying an operand's tiles, stage by stage: kCopies chunks of 16 bytes
/// that lie at fixed distances, in global memory and in the stage, so that a copy costs little more
/// than its instruction. What lies beyond the matrix or the end of K becomes zero.
template <class T, int kMn, bool kMnMajor>
class StageLoader {
 public:
  static constexpr int kCopies = kMn * 8 / T::kThreads;

  /// `base` is the matrix.
  __device__ StageLoader(
      const MmaOperand& x, const uint8_t* base, int mn0, int mn, int k_begin, int k_end) {
    const int chunk = threadIdx.x % 8;
    if constexpr (kMnMajor) {
      constexpr int kBlocks = kMn / 64;
      const int block = threadIdx.x / 8 % kBlocks;
      row_ = threadIdx.x / 8 / kBlocks;  // along K
      const int column = mn0 + block * 64 + chunk * 8;
      k_left_ = k_end - k_begin - row_;
      bytes_ = max(0, min(16, (mn - column) * kSize));
      from_ = base + (k_begin + row_) * x.stride + int64_t{column} * kSize;
      distance_ = kRowsApart * x.stride;
      step_ = T::kK * x.stride;
      to_ = block * 8192 + row_ * 128 + ((chunk ^ (row_ % 8)) << 4);
    } else {
      row_ = threadIdx.x / 8;
      k_left_ = k_end - k_begin - chunk * (16 / kSize);
      bytes_ = 0;  // one bit a copy: its row exists
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        bytes_ |= mn0 + row_ + i * kRowsApart < mn ? 1 << i : 0;
      }
      from_ = base + (mn0 + row_) * x.stride + (k_begin + chunk * (16 / kSize)) * int64_t{kSize};
      distance_ = kRowsApart * x.stride;
      step_ = 128;
      to_ = row_ * 128 + ((chunk ^ (row_ % 8)) << 4);
    }
  }

  /// Starts copy i of the next stage.
  __device__ __forceinline__ void copy(uint32_t stage, int i) const {
    const int bytes = kMnMajor ? (i * kRowsApart < k_left_ ? bytes_ : 0)
                               : (bytes_ >> i & 1) * max(0, min(16, k_left_ * kSize));
    sm80::copy_async(stage + to_ + i * kRowsApart * 128, from_ + i * distance_, bytes);
  }
  __device__ __forceinline__ void advance() {
    from_ += step_;
    k_left_ -= T::kK;
  }

 private:
  static constexpr int kSize = sizeof(typename T::In);
  static constexpr int kRowsApart = kMnMajor ? T::kThreads / 8 / (kMn / 64) : T::kThreads / 8;
  static_assert(kRowsApart % 8 == 0, "the XOR is the same for all copies of a thread");

  const uint8_t* from_;
  int64_t distance_;
  int64_t step_;
  uint32_t to_;
  int row_;
  int k_left_;
  int bytes_;
};

/// The 16 x 32-byte fragment of A at row `row` of the tile, instruction `step` of the stage.
template <class T>
__device__ __forceinline__ void load_a(uint32_t a, int row, int step, uint32_t (&r)[4]) {
  const int lane = threadIdx.x % 32;
  if constexpr (T::kAmn) {
    const int k = step * 16 + lane % 8 + lane / 16 * 8;
    const int m = row + lane / 8 % 2 * 8;
    sm80::ldmatrix_x4<true>(a + m / 64 * 8192 + k * 128 + ((m % 64 / 8 ^ (k % 8)) << 4), r);
  } else {
    const int m = row + lane % 16;
    sm80::ldmatrix_x4<false>(a + m * 128 + (((step * 2 + lane / 16) ^ (m % 8)) << 4), r);
  }
}

/// Two neighbouring 32-byte x 8 fragments of B at column `column`: r[0], r[1] and r[2], r[3].
template <class T>
__device__ __forceinline__ void load_b(uint32_t b, int column, int step, uint32_t (&r)[4]) {
  const int lane = threadIdx.x % 32;
  if constexpr (T::kBmn) {
    const int k = step * 16 + lane % 16;
    const int n = column + lane / 16 * 8;
    sm80::ldmatrix_x4<true>(b + n / 64 * 8192 + k * 128 + ((n % 64 / 8 ^ (k % 8)) << 4), r);
  } else {
    const int n = column + lane % 8 + lane / 16 * 8;
    sm80::ldmatrix_x4<false>(b + n * 128 + (((step * 2 + lane / 8 % 2) ^ (n % 8)) << 4), r);
  }
}

/// Where the interval from k ends (gemm.h, interval_end), at most at k_end.
__device__ __forceinline__ int64_t mma_interval_end(const MmaArgs& args, int64_t k, int64_t k_end) {
  int64_t end = k_end;
  if (args.promote > 0) {
    end = min(end, k + args.promote);
  }
  for (const int64_t block : {args.a.scales.block_k, args.b.scales.block_k}) {
    if (block < k_end) {
      end = min(end, (k / block + 1) * block);
    }
  }
  return end;
}

/// sum = fma(acc, scale, sum) for the interval at k, and acc starts again from zero.
template <class T>
__device__ __forceinline__ void close_interval(float (&acc)[4][T::kWarpN / 8][4],
                                               float (&sum)[4][T::kWarpN / 8][4],
                                               const MmaArgs& args,
                                               int row,
                                               int column,
                                               int64_t k) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float a_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = row + i * 16 + half * 8 + lane / 4;
      a_scale[half] = args.a.scale(min(m, args.out.M - 1), k);
    }
#pragma unroll
    for (int j = 0; j < T::kWarpN / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int n = column + j * 8 + 2 * (lane % 4) + e % 2;
        const float scale = a_scale[e / 2] * args.b.scale(min(n, args.out.N - 1), k);
        sum[i][j][e] = __fmaf_rn(acc[i][j][e], scale, sum[i][j][e]);
        acc[i][j][e] = 0.0f;
      }
    }
  }
}

// Grid: tiles of one matrix and split, M fastest within groups of 8 rows of tiles; then matrix,
// then split.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    gemm_mma_kernel(const __grid_constant__ MmaArgs args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using namespace sm80;
  using In = typename T::In;
  extern __shared__ __align__(128) uint8_t shared_raw[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared_raw));
  const GemmOutput& out = args.out;

  constexpr int kGroup = 8;
  const int per_matrix = args.tiles_m * args.tiles_n;
  const int tile = blockIdx.x % per_matrix;
  const int matrix = blockIdx.x / per_matrix % out.batch;
  const int split = blockIdx.x / per_matrix / out.batch;
  const int first = tile / (kGroup * args.tiles_n) * kGroup;
  const int height = min(kGroup, args.tiles_m - first);
  const int within = tile - first * args.tiles_n;
  const int m0 = (first + within % height) * T::kM;
  const int n0 = within / height * T::kN;
  const int k_begin = split * args.split_k;
  const int k_end = min(args.K, k_begin + args.split_k);
  const int steps = (k_end - k_begin + T::kK - 1) / T::kK;

  const int warp = threadIdx.x / 32;
  const int warp_m = warp / 4 * 64;
  const int warp_n = warp % 4 * T::kWarpN;
  StageLoader<T, T::kM, T::kAmn> loader_a(
      args.a, args.a.matrix(matrix, out.group_of(matrix)), m0, out.M, k_begin, k_end);
  StageLoader<T, T::kN, T::kBmn> loader_b(
      args.b, args.b.matrix(matrix, out.group_of(matrix)), n0, out.N, k_begin, k_end);
  constexpr int kInstructions = 4;  // of 32 bytes of K, in a stage
  // A quarter of the copies of stage `step`; groups are closed where there is nothing left to copy
  // too, so that the count of groups tells the stage.
  const auto load = [&](int step, int quarter) {
    if (step < steps) {
      const uint32_t to = shared + step % args.stages * T::kStageBytes;
      constexpr int kA = loader_a.kCopies / kInstructions;
      constexpr int kB = loader_b.kCopies / kInstructions;
#pragma unroll
      for (int i = 0; i < kA; ++i) {
        loader_a.copy(to, quarter * kA + i);
      }
#pragma unroll
      for (int i = 0; i < kB; ++i) {
        loader_b.copy(to + T::kABytes, quarter * kB + i);
      }
    }
    if (quarter == kInstructions - 1) {
      loader_a.advance();
      loader_b.advance();
      copy_commit();
    }
  };
  for (int step = 0; step < args.stages - 1; ++step) {
#pragma unroll
    for (int quarter = 0; quarter < kInstructions; ++quarter) {
      load(step, quarter);
    }
  }

  constexpr int kBlocksN = T::kWarpN / 8;
  float acc[4][kBlocksN][4] = {};
  float sum[T::kPromoted ? 4 : 1][kBlocksN][4] = {};
  uint32_t fragment_a[2][4][4];
  uint32_t fragment_b[2][kBlocksN / 2][4];
  int64_t interval = k_begin;
  int64_t interval_stop = T::kPromoted ? mma_interval_end(args, k_begin, k_end) : 0;

  const auto load_fragments = [&](uint32_t stage, int instruction, int buffer) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_a<T>(stage, warp_m + 16 * i, instruction, fragment_a[buffer][i]);
    }
#pragma unroll
    for (int j = 0; j < kBlocksN / 2; ++j) {
      load_b<T>(stage + T::kABytes, warp_n + 16 * j, instruction, fragment_b[buffer][j]);
    }
  };

  for (int step = 0; step < steps; ++step) {
    if (args.stages == 2) {
      copy_wait<0>();
    } else if (args.stages == 3) {
      copy_wait<1>();
    } else {
      copy_wait<2>();
    }
    __syncthreads();  // this stage has arrived for all, and all are done with the one loaded next
    const uint32_t stage = shared + step % args.stages * T::kStageBytes;
    load_fragments(stage, 0, 0);
#pragma unroll
    for (int instruction = 0; instruction < kInstructions; ++instruction) {
      if (instruction + 1 < kInstructions) {
        load_fragments(stage, instruction + 1, (instruction + 1) % 2);
      }
      const int now = instruction % 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < kBlocksN; ++j) {
          mma<In>(acc[i][j],
                  fragment_a[now][i],
                  fragment_b[now][j / 2][j % 2 * 2],
                  fragment_b[now][j / 2][j % 2 * 2 + 1]);
        }
        if (i == 0) {  // between products, which keep the Tensor Core busy meanwhile
          load(step + args.stages - 1, instruction);
        }
      }
      if constexpr (T::kPromoted) {
        const int64_t k = k_begin + step * T::kK + (instruction + 1) * (T::kK / kInstructions);
        if (k >= interval_stop && interval < k_end) {
          close_interval<T>(acc, sum, args, m0 + warp_m, n0 + warp_n, interval);
          interval = interval_stop;
          interval_stop = mma_interval_end(args, interval, k_end);
        }
      }
    }
  }
  copy_wait<0>();
  __syncthreads();  // the stages become staging

  float* staging = reinterpret_cast<float*>(shared_raw) + warp * 16 * T::kWarpN;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* v = T::kPromoted ? &sum[T::kPromoted ? i : 0][0][0] : &acc[i][0][0];
    const int row = m0 + warp_m + 16 * i;
    const int column = n0 + warp_n;
    if (args.direct) {
      store_fragments<T::kWarpN, 4>(v, out, row, column, out.place(matrix), split);
    } else {
      finish_fragments<T::kWarpN>(v, out, staging, row, column, out.place(matrix));
    }
  }
#endif
}

}  // namespace halftone::detail
