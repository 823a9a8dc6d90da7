// The simt kernel: FP32 on the CUDA cores, any layout, the baseline of the ladder. A block of 256
// threads computes 128 x 128 from tiles of 16 of K in shared memory, a thread 8 x 8 in registers.
// Each output is one chain of fused multiply-adds in ascending K within a split.
#include "core/cuda/check.cuh"
#include "ops/gemm/gemm_launch.cuh"

namespace halftone::detail {
namespace {

constexpr int kTile = 128;
constexpr int kDepth = 16;
constexpr int kThreads = 256;

struct SimtOperand {
  const float* data;
  OperandStrides strides;
  int64_t batch_stride;
  GemmScales scales;

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
  bool has_intervals;
};

/// Loads 128 x 16 of an operand, threads along its contiguous dimension.
__device__ void load_tile(float (&to)[kDepth][kTile + 4],
                          const SimtOperand& x,
                          const float* base,
                          int mn0,
                          int mn,
                          int k0,
                          int k_end) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const bool along_k = x.strides.k == 1;
    const int m = along_k ? i / kDepth : i % kTile;
    const int k = along_k ? i % kDepth : i / kTile;
    to[k][m] = mn0 + m < mn && k0 + k < k_end
                   ? base[(mn0 + m) * x.strides.mn + (k0 + k) * x.strides.k]
                   : 0.0f;
  }
}

__device__ int64_t interval_stop(const SimtArgs& args, int64_t k, int64_t k_end) {
  int64_t end = args.promote > 0 ? min(k_end, k + args.promote) : k_end;
  for (const int64_t block : {args.a.scales.block_k, args.b.scales.block_k}) {
    end = block < k_end ? min(end, (k / block + 1) * block) : end;
  }
  return end;
}

__global__ void __launch_bounds__(kThreads)
    gemm_simt_kernel(const __grid_constant__ SimtArgs args) {
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ float tile_b[kDepth][kTile + 4];
  const GemmOutput& out = args.out;
  const int matrix = blockIdx.z % out.batch;
  const int split = blockIdx.z / out.batch;
  const int m0 = blockIdx.x * kTile;
  const int n0 = blockIdx.y * kTile;
  const int row = threadIdx.x / 16 * 8;
  const int column = threadIdx.x % 16 * 8;
  const float* a = args.a.data + matrix * args.a.batch_stride;
  const float* b = args.b.data + matrix * args.b.batch_stride;
  const int k_begin = split * args.split_k;
  const int k_end = min(args.K, k_begin + args.split_k);

  float acc[8][8] = {};
  float sum[8][8] = {};
  int64_t interval = k_begin;
  for (int k0 = k_begin; k0 < k_end; k0 += kDepth) {
    load_tile(tile_a, args.a, a, m0, out.M, k0, k_end);
    load_tile(tile_b, args.b, b, n0, out.N, k0, k_end);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float x[8], y[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = tile_a[k][row + i];
        y[i] = tile_b[k][column + i];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          acc[i][j] = __fmaf_rn(x[i], y[j], acc[i][j]);
        }
      }
    }
    __syncthreads();
    if (args.has_intervals && k0 + kDepth >= interval_stop(args, interval, k_end)) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
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
  if (n0 + column >= out.N) {
    return;
  }
  float bias[8];
  load_bias(out, n0 + column, bias);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (m0 + row + i >= out.M) {
      return;
    }
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = args.has_intervals ? sum[i][j] : acc[i][j];
    }
    if (out.partials != nullptr) {
      store_8(out.partial(split, matrix, m0 + row + i, n0 + column), DType::f32, 0, true, 8, v);
    } else {
      finish_8(out, matrix, m0 + row + i, n0 + column, bias, v);
    }
  }
}

}  // namespace

void run_simt(const GemmLaunch& launch) {
  const auto operand = [](const GemmOperand& x, bool is_a) {
    return SimtOperand{
        static_cast<const float*>(x.data), strides_of(x, is_a), x.batch_stride, x.scales};
  };
  const KOrder& order = launch.config.order;
  const SimtArgs args{.out = launch.out,
                      .a = operand(launch.a, true),
                      .b = operand(launch.b, false),
                      .K = static_cast<int>(launch.K),
                      .split_k = static_cast<int>(order.split_k),
                      .promote = static_cast<int>(order.promote),
                      .has_intervals = order.promote > 0 || launch.a.scales.data != nullptr ||
                                       launch.b.scales.data != nullptr};
  const auto tiles = [](int size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
  const dim3 grid(tiles(launch.out.M),
                  tiles(launch.out.N),
                  static_cast<unsigned>(launch.out.batch * launch.config.splits));
  gemm_simt_kernel<<<grid, kThreads, 0, launch.stream>>>(args);
  HALFTONE_CUDA_CHECK_LAUNCH();
}

}  // namespace halftone::detail
