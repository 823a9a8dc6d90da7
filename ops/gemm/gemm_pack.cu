// Operands brought into the form a kernel reads: 16-bit values or FP32, rows of a multiple of 16
// bytes, K contiguous where the kernel needs it. Codes of 8 bits and fewer become FP16 or BF16 once
// here instead of once for every tile that reads them; TF32 operands are rounded, to nearest even.
// Every conversion but that one is exact.
#include <type_traits>

#include "core/cuda/check.cuh"
#include "core/integer.h"
#include "ops/gemm/gemm_launch.cuh"

namespace halftone::detail {
namespace {

constexpr int kTile = 64;  // of the source, squared
constexpr int kThreads = 256;

struct PackArgs {
  const void* from = nullptr;
  void* to = nullptr;
  Format format{};            // of the source
  bool is_bf16 = false;       // the source
  bool is_tf32 = false;       // the source, to be rounded
  DType dtype = DType::bf16;  // of the destination
  int64_t stride = 0, batch_stride = 0;
  int64_t group = 0, group_stride = 0;  // GemmProblem::group
  int64_t rows = 0, columns = 0;        // of the source
  int64_t to_rows = 0, to_columns = 0;  // of the destination: zeros beyond the source
  int64_t tiles_along_rows = 0, tiles_along_columns = 0;
  bool reads_vectors = false, writes_vectors = false;  // 16 bytes at a time
};

/// An element as the destination holds it. Codes are looked up.
template <class From, class To>
__device__ __forceinline__ To convert(From x, const PackArgs& args, const To* table) {
  if constexpr (sizeof(From) == 1) {
    return table[x];
  } else if constexpr (std::is_same_v<From, To>) {
    if constexpr (std::is_same_v<To, float>) {
      return args.is_tf32 ? __uint_as_float(encode(kTf32, x) << 13) : x;
    }
    return x;
  } else {
    return args.is_bf16 ? __uint_as_float(uint32_t{x} << 16) : __half2float(__ushort_as_half(x));
  }
}

/// kCount elements of a row of the destination, 16 bytes at a time where its rows allow.
template <int kCount, class To>
__device__ __forceinline__ void store_row(
    const PackArgs& args, int64_t matrix, int64_t row, int64_t column, const To (&v)[kCount]) {
  constexpr int kVector = 16 / sizeof(To);
  if (row >= args.to_rows) {
    return;
  }
  To* to = static_cast<To*>(args.to) + (matrix * args.to_rows + row) * args.to_columns;
#pragma unroll
  for (int first = 0; first < kCount; first += kVector) {
    if (args.writes_vectors) {
      if (column + first < args.to_columns) {
        uint4 bits;
        memcpy(&bits, v + first, 16);
        *reinterpret_cast<uint4*>(to + column + first) = bits;
      }
      continue;
    }
#pragma unroll
    for (int j = first; j < first + kVector; ++j) {
      if (column + j < args.to_columns) {
        to[column + j] = v[j];
      }
    }
  }
}

// A tile of the source, read along its rows; kTurns: written along its columns, by way of shared
// memory.
template <class From, class To, bool kTurns>
__global__ void __launch_bounds__(kThreads)
    pack_operand_kernel(const __grid_constant__ PackArgs args) {
  constexpr int kIn = 16 / sizeof(From);
  constexpr int kOut = 16 / sizeof(To);
  __shared__ To table[sizeof(From) == 1 ? 256 : 1];
  __shared__ To tile[kTurns ? kTile : 1][kTile + 4 / sizeof(To)];
  if constexpr (sizeof(From) == 1) {
    const float value = decode(args.format, threadIdx.x & (args.format.magnitude_mask() * 2u + 1u));
    store_value(table, args.dtype, threadIdx.x, value);
    __syncthreads();
  }
  const int64_t row0 = blockIdx.x % args.tiles_along_rows * kTile;
  const int64_t column0 = blockIdx.x / args.tiles_along_rows % args.tiles_along_columns * kTile;
  const int64_t matrix = blockIdx.x / args.tiles_along_rows / args.tiles_along_columns;
  const From* from = static_cast<const From*>(args.from) +
                     matrix_offset(matrix, args.group, args.batch_stride, args.group_stride);
#pragma unroll
  for (int i = threadIdx.x; i < kTile * kTile / kIn; i += kThreads) {
    const int r = i / (kTile / kIn);
    const int c = i % (kTile / kIn) * kIn;
    const From* chunk = from + (row0 + r) * args.stride + column0 + c;
    const int64_t valid = row0 + r < args.rows ? args.columns - column0 - c : 0;
    From in[kIn];
    if (args.reads_vectors && valid >= kIn) {
      const uint4 bits = *reinterpret_cast<const uint4*>(chunk);
      memcpy(in, &bits, 16);
    } else {
#pragma unroll
      for (int j = 0; j < kIn; ++j) {
        in[j] = j < valid ? chunk[j] : From{};
      }
    }
    To out[kIn];
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
      out[j] = j < valid ? convert(in[j], args, table) : To{};
    }
    if constexpr (kTurns) {
#pragma unroll
      for (int j = 0; j < kIn; ++j) {
        tile[r][c + j] = out[j];
      }
    } else {
      store_row(args, matrix, row0 + r, column0 + c, out);
    }
  }
  if constexpr (kTurns) {
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kTile / kOut; i += kThreads) {
      const int r = i / (kTile / kOut);
      const int c = i % (kTile / kOut) * kOut;
      To out[kOut];
#pragma unroll
      for (int j = 0; j < kOut; ++j) {
        out[j] = tile[c + j][r];
      }
      store_row(args, matrix, column0 + r, row0 + c, out);
    }
  }
}

template <class From, class To>
void launch_pack(PackArgs args, bool turns, int64_t matrices, cudaStream_t stream) {
  args.reads_vectors =
      reinterpret_cast<uintptr_t>(args.from) % 16 == 0 && args.stride % (16 / sizeof(From)) == 0 &&
      args.batch_stride % (16 / sizeof(From)) == 0 && args.group_stride % (16 / sizeof(From)) == 0;
  args.writes_vectors = args.to_columns % (16 / sizeof(To)) == 0;
  args.tiles_along_rows = ceil_div(turns ? args.to_columns : args.to_rows, kTile);
  args.tiles_along_columns = ceil_div(turns ? args.to_rows : args.to_columns, kTile);
  const int64_t blocks = args.tiles_along_rows * args.tiles_along_columns * matrices;
  if (blocks > 0) {
    const auto kernel =
        turns ? pack_operand_kernel<From, To, true> : pack_operand_kernel<From, To, false>;
    kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args);
    HALFTONE_CUDA_CHECK_LAUNCH();
  }
}

int64_t matrices(const GemmOperand& x, int64_t batch) { return x.batch_stride == 0 ? 1 : batch; }

}  // namespace

int64_t packed_size(const GemmOperand& x, int64_t batch, const PackedLayout& layout) {
  return matrices(x, batch) * layout.mn * layout.k;
}

GemmOperand pack_operand(const GemmOperand& x,
                         bool is_a,
                         int64_t mn,
                         int64_t k,
                         int64_t batch,
                         int64_t group,
                         const PackedLayout& layout,
                         void* to,
                         cudaStream_t stream) {
  const int64_t rows = layout.k_contiguous ? layout.mn : layout.k;
  const int64_t columns = layout.k_contiguous ? layout.k : layout.mn;
  const bool source_k = k_contiguous(x, is_a);
  const PackArgs args{.from = x.data,
                      .to = to,
                      .format = x.format,
                      .is_bf16 = x.format == kBf16,
                      .is_tf32 = x.format == kTf32,
                      .dtype = layout.dtype,
                      .stride = x.stride,
                      .batch_stride = x.batch_stride,
                      .group = group,
                      .group_stride = x.group_stride,
                      .rows = source_k ? mn : k,
                      .columns = source_k ? k : mn,
                      .to_rows = rows,
                      .to_columns = columns};
  const bool is_16_bit = layout.dtype != DType::f32;
  const auto launch =
      x.format.bits() <= 8
          ? (is_16_bit ? launch_pack<uint8_t, uint16_t> : launch_pack<uint8_t, float>)
      : is_16_bit             ? launch_pack<uint16_t, uint16_t>
      : x.format.bits() == 16 ? launch_pack<uint16_t, float>
                              : launch_pack<float, float>;
  launch(args, source_k != layout.k_contiguous, matrices(x, batch), stream);
  GemmOperand packed = x;
  packed.data = to;
  packed.format = layout.dtype == DType::bf16 ? kBf16 : layout.dtype == DType::f16 ? kFp16 : kTf32;
  packed.transposed = layout.k_contiguous != is_a;
  packed.stride = columns;
  packed.batch_stride = x.batch_stride == 0 ? 0 : rows * columns;
  packed.group_stride = group * packed.batch_stride;
  return packed;
}

}  // namespace halftone::detail
