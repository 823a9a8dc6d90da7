// The two lowest rungs on Tensor Cores, through nvcuda::wmma (sm_75 and later; bf16 from sm_80).
// wmma_naive: a warp computes 16 x 16, reading fragments straight from global memory. wmma: eight
// warps share tiles of 128 x 128 x 32 in shared memory, padded by 8 elements against bank
// conflicts. The fragments' layout is the library's secret, so results pass through shared memory
// to learn their row and column. Operands come padded with zeros to whole tiles.
#include <mma.h>

#include "core/cuda/check.cuh"
#include "ops/gemm/gemm_launch.cuh"

namespace halftone::detail {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWarps = 8;
constexpr int kTile = 128;
constexpr int kDepth = 32;
constexpr int kPad = 8;

struct WmmaArgs {
  GemmOutput out;
  const void* a;
  const void* b;
  int64_t a_stride, b_stride;
  int64_t a_batch_stride, b_batch_stride;
  int64_t a_group_skip, b_group_skip;
  int K;  // a multiple of 16
  int split_k;
};

template <bool kTransposed>
using Layout = std::conditional_t<kTransposed, wmma::col_major, wmma::row_major>;

// Fragments of bf16 exist from sm_80. Below it gemm_config refuses such products; for the code of
// kernels that nothing launches there, fp16 will do.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <class T>
using Multiplied = __half;
#else
template <class T>
using Multiplied = T;
#endif

/// A 16 x 16 result, in the warp's own shared memory, through the epilogue or to the partial sums.
__device__ void store_16x16(
    const float* staging, const GemmOutput& out, int row, int column, int place, int split) {
  __syncwarp();
  const int lane = threadIdx.x % 32;
  const int r = row + lane / 2;
  const int c = column + lane % 2 * 8;
  if (r < out.M && c < out.N) {
    float v[8];
    load_8(staging, DType::f32, lane / 2 * 16 + lane % 2 * 8, true, 8, v);
    if (out.partials != nullptr) {
      store_8(out.partial(split, place, r, c), DType::f32, 0, true, 8, v);
    } else {
      float bias[8];
      load_bias(out, c, bias);
      finish_8(out, place, r, c, bias, v);
    }
  }
  __syncwarp();
}

// Grid: (16 rows x 8 warps along N, ...): x tiles of M, y groups of 8 tiles of N, z matrix and
// split.
template <class T, bool kAmn, bool kBmn>
__global__ void __launch_bounds__(32 * kWarps)
    gemm_wmma_naive_kernel(const __grid_constant__ WmmaArgs args) {
  using In = Multiplied<T>;
  __shared__ __align__(32) float staging[kWarps][256];
  const int warp = threadIdx.x / 32;
  const int matrix = blockIdx.z % args.out.batch;
  const int split = blockIdx.z / args.out.batch;
  const int row = blockIdx.x * 16;
  const int column = (blockIdx.y * kWarps + warp) * 16;
  if (column >= args.out.N) {
    return;
  }
  const In* a = static_cast<const In*>(args.a) + matrix * args.a_batch_stride +
                args.out.group_of(matrix) * args.a_group_skip;
  const In* b = static_cast<const In*>(args.b) + matrix * args.b_batch_stride +
                args.out.group_of(matrix) * args.b_group_skip;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, In, Layout<kAmn>> fragment_a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, In, Layout<!kBmn>> fragment_b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0f);
  const int k_end = min(args.K, (split + 1) * args.split_k);
  for (int k = split * args.split_k; k < k_end; k += 16) {
    wmma::load_matrix_sync(fragment_a,
                           kAmn ? a + k * args.a_stride + row : a + row * args.a_stride + k,
                           args.a_stride);
    wmma::load_matrix_sync(fragment_b,
                           kBmn ? b + k * args.b_stride + column : b + column * args.b_stride + k,
                           args.b_stride);
    wmma::mma_sync(acc, fragment_a, fragment_b, acc);
  }
  wmma::store_matrix_sync(staging[warp], acc, 16, wmma::mem_row_major);
  store_16x16(staging[warp], args.out, row, column, args.out.place(matrix), split);
}

/// rows x columns 16-bit elements to shared memory of `pitch`, 16 bytes at a time.
template <class In>
__device__ void copy_tile(
    In* to, int pitch, const In* from, int64_t stride, int rows, int columns) {
  for (int i = threadIdx.x; i < rows * columns / 8; i += 32 * kWarps) {
    const int r = i / (columns / 8);
    const int c = i % (columns / 8) * 8;
    *reinterpret_cast<uint4*>(to + r * pitch + c) =
        *reinterpret_cast<const uint4*>(from + r * stride + c);
  }
}

// Warps two deep and four across, 64 x 32 each.
template <class T, bool kAmn, bool kBmn>
__global__ void __launch_bounds__(32 * kWarps)
    gemm_wmma_kernel(const __grid_constant__ WmmaArgs args) {
  using In = Multiplied<T>;
  constexpr int kPitchA = (kAmn ? kTile : kDepth) + kPad;
  constexpr int kPitchB = (kBmn ? kTile : kDepth) + kPad;
  __shared__ __align__(32) In tile_a[(kAmn ? kDepth : kTile) * kPitchA];
  __shared__ __align__(32) In tile_b[(kBmn ? kDepth : kTile) * kPitchB];
  __shared__ __align__(32) float staging[kWarps][256];
  const int warp = threadIdx.x / 32;
  const int matrix = blockIdx.z % args.out.batch;
  const int split = blockIdx.z / args.out.batch;
  const int m0 = blockIdx.x * kTile;
  const int n0 = blockIdx.y * kTile;
  const int warp_m = warp / 4 * 64;
  const int warp_n = warp % 4 * 32;
  const In* a = static_cast<const In*>(args.a) + matrix * args.a_batch_stride +
                args.out.group_of(matrix) * args.a_group_skip;
  const In* b = static_cast<const In*>(args.b) + matrix * args.b_batch_stride +
                args.out.group_of(matrix) * args.b_group_skip;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, In, Layout<kAmn>> fragment_a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, In, Layout<!kBmn>> fragment_b[2];
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[8];  // [4][2]
  for (auto& fragment : acc) {
    wmma::fill_fragment(fragment, 0.0f);
  }
  const int k_end = min(args.K, (split + 1) * args.split_k);
  for (int k0 = split * args.split_k; k0 < k_end; k0 += kDepth) {
    copy_tile(tile_a,
              kPitchA,
              kAmn ? a + k0 * args.a_stride + m0 : a + m0 * args.a_stride + k0,
              args.a_stride,
              kAmn ? kDepth : kTile,
              kAmn ? kTile : kDepth);
    copy_tile(tile_b,
              kPitchB,
              kBmn ? b + k0 * args.b_stride + n0 : b + n0 * args.b_stride + k0,
              args.b_stride,
              kBmn ? kDepth : kTile,
              kBmn ? kTile : kDepth);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int n = warp_n + 16 * j;
        wmma::load_matrix_sync(
            fragment_b[j], kBmn ? tile_b + k * kPitchB + n : tile_b + n * kPitchB + k, kPitchB);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = warp_m + 16 * i;
        wmma::load_matrix_sync(
            fragment_a, kAmn ? tile_a + k * kPitchA + m : tile_a + m * kPitchA + k, kPitchA);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          wmma::mma_sync(acc[2 * i + j], fragment_a, fragment_b[j], acc[2 * i + j]);
        }
      }
    }
    __syncthreads();
  }
  // Each block of sums moves to the front in turn, so that the epilogue is compiled once.
#pragma unroll 1
  for (int block = 0; block < 8; ++block) {
    wmma::store_matrix_sync(staging[warp], acc[0], 16, wmma::mem_row_major);
    store_16x16(staging[warp],
                args.out,
                m0 + warp_m + block / 2 * 16,
                n0 + warp_n + block % 2 * 16,
                args.out.place(matrix),
                split);
#pragma unroll
    for (int i = 0; i < 7; ++i) {
      acc[i] = acc[i + 1];
    }
  }
}

template <class In, bool kAmn, bool kBmn>
void launch_wmma(const GemmLaunch& launch, const WmmaArgs& args) {
  const auto count = [](int64_t size, int64_t tile) {
    return static_cast<unsigned>((size + tile - 1) / tile);
  };
  const int64_t deep = args.out.batch * launch.config.splits;
  HALFTONE_CHECK(deep <= 65535 && args.out.N < 65535 * int64_t{kTile},
                 "gemm: wmma takes at most 65,535 matrices times splits, and as many tiles of ",
                 kTile,
                 " columns; there are ",
                 deep,
                 " and ",
                 args.out.N,
                 " columns");
  if (launch.config.kernel == GemmKernel::wmma_naive) {
    const dim3 grid(
        count(args.out.M, 16), count(args.out.N, 16 * kWarps), static_cast<unsigned>(deep));
    gemm_wmma_naive_kernel<In, kAmn, kBmn><<<grid, 32 * kWarps, 0, launch.stream>>>(args);
  } else {
    const dim3 grid(
        count(args.out.M, kTile), count(args.out.N, kTile), static_cast<unsigned>(deep));
    gemm_wmma_kernel<In, kAmn, kBmn><<<grid, 32 * kWarps, 0, launch.stream>>>(args);
  }
  HALFTONE_CUDA_CHECK_LAUNCH();
}

template <class In>
void launch_layout(const GemmLaunch& launch, const WmmaArgs& args) {
  const bool a_k = k_contiguous(launch.a, true);
  const bool b_k = k_contiguous(launch.b, false);
  if (a_k && b_k) {
    launch_wmma<In, false, false>(launch, args);
  } else if (a_k) {
    launch_wmma<In, false, true>(launch, args);
  } else if (b_k) {
    launch_wmma<In, true, false>(launch, args);
  } else {
    launch_wmma<In, true, true>(launch, args);
  }
}

}  // namespace

void run_wmma(const GemmLaunch& launch) {
  const WmmaArgs args{
      .out = launch.out,
      .a = launch.a.data,
      .b = launch.b.data,
      .a_stride = launch.a.stride,
      .b_stride = launch.b.stride,
      .a_batch_stride = launch.a.batch_stride,
      .b_batch_stride = launch.b.batch_stride,
      .a_group_skip = group_skip(launch.a, launch.group),
      .b_group_skip = group_skip(launch.b, launch.group),
      .K = static_cast<int>((launch.K + 31) / 32 * 32),  // packed operands hold zeros there
      .split_k = static_cast<int>(launch.config.order.split_k)};
  if (launch.a.format == kBf16) {
    launch_layout<__nv_bfloat16>(launch, args);
  } else {
    launch_layout<__half>(launch, args);
  }
}

}  // namespace halftone::detail
