// The simt kernel: FP32 on the CUDA cores, any layout, the baseline of the ladder. A block of 256
// threads computes 128 x 128 from tiles of 16 of K, a thread 8 x 8 in registers; where that makes
// too few blocks, 64 threads compute 32 x 32. While one tile in shared memory is multiplied, the
// next is on its way from memory to registers. Each output is one chain of fused multiply-adds in
// ascending K within a split, whatever the tile.
#include "core/cuda/check.cuh"
#include "ops/gemm/gemm_launch.cuh"

namespace halftone::detail {
namespace {

constexpr int kDepth = 16;

// A tile in shared memory: for each k its values of M or N, the first four of every eight in one
// half, the others in the second, kHalf behind. So both 16-byte reads of eight neighbouring values
// meet every bank once, and halves and rows start in banks that let transposing writes do the same.
struct LargeTile {
  static constexpr int kSize = 128;  // of M and N
  static constexpr int kRows = 8;    // a thread; its columns are always 8
  static constexpr int kHalf = 72;
  static constexpr int kPitch = 140;
  // A warp computes 32 x 64.
  __device__ static int row() { return threadIdx.x / 64 * 32 + threadIdx.x % 32 / 8 * 8; }
  __device__ static int column() { return threadIdx.x / 32 % 2 * 64 + threadIdx.x % 8 * 8; }
};
struct SmallTile {
  static constexpr int kSize = 32;
  static constexpr int kRows = 2;
  static constexpr int kHalf = 24;
  static constexpr int kPitch = 44;
  __device__ static int row() { return threadIdx.x / 4 * 2; }
  __device__ static int column() { return threadIdx.x % 4 * 8; }
};

template <class Tile>
constexpr int kThreads = Tile::kSize / Tile::kRows* Tile::kSize / 8;
template <class Tile>
using Stage = float[kDepth][Tile::kPitch];

struct SimtOperand {
  const float* data;
  OperandStrides strides;
  int64_t batch_stride;
  int64_t group_skip;
  bool vectors;  // four values along the contiguous dimension, from a multiple of 4, are aligned
  GemmScales scales;

  __device__ const float* matrix(int i, int group) const {
    return data + i * batch_stride + group * group_skip;
  }
  __device__ float scale(int64_t i, int64_t k) const {
    return scales.data == nullptr ? 1.0f
                                  : scales.data[i / scales.block_mn * scales.stride_mn +
                                                k / scales.block_k * scales.stride_k];
  }
};

struct SimtArgs {
  GemmOutput out;
  SimtOperand a;
  SimtOperand b;
  int K;
  int split_k;
  int promote;
};

template <class Tile>
__device__ __forceinline__ int place_of(int mn) {
  return mn % 4 + mn / 8 * 4 + mn / 4 % 2 * Tile::kHalf;
}

/// This thread's share of one tile of an operand, between memory and shared memory.
template <class Tile>
struct TileShare {
  static constexpr int kChunks = Tile::kSize / 4;
  float4 part[2];

  // Along K a pair of lanes reads 32 bytes of one of 16 rows, else neighbours read one k.
  __device__ static int mn(bool along_k) {
    return along_k ? threadIdx.x / 32 * 16 + threadIdx.x % 32 / 2 : threadIdx.x % kChunks * 4;
  }
  __device__ static int k(bool along_k, int i) {
    return 8 * i + static_cast<int>(along_k ? threadIdx.x % 2 * 4 : threadIdx.x / kChunks);
  }

  /// Zeros where the operand ends.
  __device__ __forceinline__ void fetch(
      const SimtOperand& x, const float* base, int mn0, int mn_end, int k0, int k_end) {
    const bool along_k = x.strides.k == 1;
    const int m = mn0 + mn(along_k);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int kk = k0 + k(along_k, i);
      const float* from = base + m * x.strides.mn + kk * x.strides.k;
      const int valid = along_k ? (m < mn_end ? k_end - kk : 0) : (kk < k_end ? mn_end - m : 0);
      if (x.vectors && valid >= 4) {
        part[i] = *reinterpret_cast<const float4*>(from);
      } else {
        const int64_t step = along_k ? x.strides.k : x.strides.mn;
        part[i] = {valid > 0 ? from[0] : 0.0f,
                   valid > 1 ? from[step] : 0.0f,
                   valid > 2 ? from[2 * step] : 0.0f,
                   valid > 3 ? from[3 * step] : 0.0f};
      }
    }
  }

  __device__ __forceinline__ void put(bool along_k, Stage<Tile>& tile) const {
    const int place = place_of<Tile>(mn(along_k));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int kk = k(along_k, i);
      if (along_k) {
        tile[kk][place] = part[i].x;
        tile[kk + 1][place] = part[i].y;
        tile[kk + 2][place] = part[i].z;
        tile[kk + 3][place] = part[i].w;
      } else {
        *reinterpret_cast<float4*>(&tile[kk][place]) = part[i];
      }
    }
  }
};

/// kCount neighbouring values of M or N at one k, from a multiple of kCount.
template <class Tile, int kCount>
__device__ __forceinline__ void read(const float (&row)[Tile::kPitch], int mn, float (&v)[kCount]) {
  if constexpr (kCount == 8) {
    const float4 low = *reinterpret_cast<const float4*>(&row[mn / 2]);
    const float4 high = *reinterpret_cast<const float4*>(&row[mn / 2 + Tile::kHalf]);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  } else {
    static_assert(kCount == 2);
    const float2 pair = *reinterpret_cast<const float2*>(&row[place_of<Tile>(mn)]);
    v[0] = pair.x, v[1] = pair.y;
  }
}

__device__ int64_t interval_stop(const SimtArgs& args, int64_t k, int64_t k_end) {
  int64_t end = args.promote > 0 ? min(k_end, k + args.promote) : k_end;
  for (const int64_t block : {args.a.scales.block_k, args.b.scales.block_k}) {
    end = block < k_end ? min(end, (k / block + 1) * block) : end;
  }
  return end;
}

__host__ __device__ unsigned tiles(int size, int tile) {
  return (static_cast<unsigned>(size) + tile - 1) / tile;
}

template <class Tile, bool kHasIntervals>
__global__ void __launch_bounds__(kThreads<Tile>, kHasIntervals || Tile::kRows < 8 ? 1 : 2)
    gemm_simt_kernel(const __grid_constant__ SimtArgs args) {
  constexpr int kRows = Tile::kRows;
  __shared__ __align__(16) Stage<Tile> tiles_a[2];
  __shared__ __align__(16) Stage<Tile> tiles_b[2];
  const GemmOutput& out = args.out;
  // Blocks in one dimension, since the others end at 65,535: M fastest, then N, matrix, split.
  const unsigned tiles_m = tiles(out.M, Tile::kSize);
  const unsigned tiles_n = tiles(out.N, Tile::kSize);
  const int m0 = static_cast<int>(blockIdx.x % tiles_m) * Tile::kSize;
  const int n0 = static_cast<int>(blockIdx.x / tiles_m % tiles_n) * Tile::kSize;
  const unsigned deep = blockIdx.x / tiles_m / tiles_n;
  const int matrix = static_cast<int>(deep % out.batch);
  const int split = static_cast<int>(deep / out.batch);
  const int place = out.place(matrix);
  const int row = Tile::row();
  const int column = Tile::column();
  const float* a = args.a.matrix(matrix, out.group_of(matrix));
  const float* b = args.b.matrix(matrix, out.group_of(matrix));
  const bool a_along_k = args.a.strides.k == 1;
  const bool b_along_k = args.b.strides.k == 1;
  const int k_begin = split * args.split_k;
  const int k_end = min(args.K, k_begin + args.split_k);

  float acc[kRows][8] = {};
  float sum[kHasIntervals ? kRows : 1][8] = {};
  int64_t interval = k_begin;
  TileShare<Tile> share_a, share_b;
  share_a.fetch(args.a, a, m0, out.M, k_begin, k_end);
  share_b.fetch(args.b, b, n0, out.N, k_begin, k_end);
  int stage = 0;
  for (int k0 = k_begin; k0 < k_end; k0 += kDepth) {
    share_a.put(a_along_k, tiles_a[stage]);
    share_b.put(b_along_k, tiles_b[stage]);
    // One barrier is enough: the other stage, which the next round fills, was read before it.
    __syncthreads();
    if (k0 + kDepth < k_end) {
      share_a.fetch(args.a, a, m0, out.M, k0 + kDepth, k_end);
      share_b.fetch(args.b, b, n0, out.N, k0 + kDepth, k_end);
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float x[kRows], y[8];
      read<Tile>(tiles_a[stage][k], row, x);
      read<Tile>(tiles_b[stage][k], column, y);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          acc[i][j] = __fmaf_rn(x[i], y[j], acc[i][j]);
        }
      }
    }
    stage ^= 1;
    if constexpr (kHasIntervals) {
      if (k0 + kDepth >= interval_stop(args, interval, k_end)) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const float a_scale = args.a.scale(min(m0 + row + i, out.M - 1), interval);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const float scale = a_scale * args.b.scale(min(n0 + column + j, out.N - 1), interval);
            sum[i][j] = __fmaf_rn(acc[i][j], scale, sum[i][j]);
            acc[i][j] = 0.0f;
          }
        }
        interval = k0 + kDepth;
      }
    }
  }
  if (n0 + column >= out.N) {
    return;
  }
  float bias[8];
  load_bias(out, n0 + column, bias);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (m0 + row + i >= out.M) {
      return;
    }
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = kHasIntervals ? sum[kHasIntervals ? i : 0][j] : acc[i][j];
    }
    if (out.partials != nullptr) {
      store_8(out.partial(split, place, m0 + row + i, n0 + column), DType::f32, 0, true, 8, v);
    } else {
      finish_8(out, place, m0 + row + i, n0 + column, bias, v);
    }
  }
}

template <class Tile>
int64_t num_tiles(const GemmLaunch& launch) {
  return int64_t{tiles(launch.out.M, Tile::kSize)} * tiles(launch.out.N, Tile::kSize) *
         launch.out.batch * launch.config.splits;
}

template <class Tile>
void launch_simt(const GemmLaunch& launch, const SimtArgs& args) {
  const bool has_intervals =
      args.promote > 0 || args.a.scales.data != nullptr || args.b.scales.data != nullptr;
  const int64_t blocks = num_tiles<Tile>(launch);
  HALFTONE_CHECK(
      blocks <= INT32_MAX, "gemm: ", blocks, " blocks of outputs are more than a GPU takes");
  const auto kernel = has_intervals ? gemm_simt_kernel<Tile, true> : gemm_simt_kernel<Tile, false>;
  kernel<<<static_cast<unsigned>(blocks), kThreads<Tile>, 0, launch.stream>>>(args);
  HALFTONE_CUDA_CHECK_LAUNCH();
}

}  // namespace

void run_simt(const GemmLaunch& launch) {
  const auto operand = [&](const GemmOperand& x, bool is_a) {
    return SimtOperand{static_cast<const float*>(x.data),
                       strides_of(x, is_a),
                       x.batch_stride,
                       group_skip(x, launch.group),
                       reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0 &&
                           x.batch_stride % 4 == 0,
                       x.scales};
  };
  const KOrder& order = launch.config.order;
  const SimtArgs args{.out = launch.out,
                      .a = operand(launch.a, true),
                      .b = operand(launch.b, false),
                      .K = static_cast<int>(launch.K),
                      .split_k = static_cast<int>(order.split_k),
                      .promote = static_cast<int>(order.promote)};
  if (num_tiles<LargeTile>(launch) >= launch.multiprocessors / 2) {
    launch_simt<LargeTile>(launch, args);
  } else {
    launch_simt<SmallTile>(launch, args);
  }
}

}  // namespace halftone::detail
