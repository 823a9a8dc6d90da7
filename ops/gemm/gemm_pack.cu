// Operands brought into the form a kernel reads: 16-bit values or FP32, rows of a multiple of 16
// bytes, K contiguous where the kernel needs it. Codes of 8 bits and fewer become FP16 or BF16 once
// here instead of once for every tile that reads them; TF32 operands are rounded, to nearest even.
// Every conversion but that one is exact.
#include "core/cuda/check.cuh"
#include "ops/gemm/gemm_launch.cuh"

namespace halftone::detail {
namespace {

constexpr int kTile = 32;

enum class Source : uint8_t { f32, tf32, bf16, fp16, code };

Source source_of(const Format& format) {
  return format == kTf32      ? Source::tf32
         : format == kBf16    ? Source::bf16
         : format == kFp16    ? Source::fp16
         : format.bits() <= 8 ? Source::code
                              : Source::f32;
}

__device__ float read_element(const void* data, Source source, int64_t i, const float* table) {
  switch (source) {
    case Source::bf16:
      return load_value(data, DType::bf16, i);
    case Source::fp16:
      return load_value(data, DType::f16, i);
    case Source::code:
      return table[static_cast<const uint8_t*>(data)[i]];
    case Source::tf32:
      return __uint_as_float(encode(kTf32, static_cast<const float*>(data)[i]) << 13);
    case Source::f32:
      break;
  }
  return static_cast<const float*>(data)[i];
}

// A tile of 32 x 32 through shared memory, so that reads and writes are both along their contiguous
// dimension. Grid: (tiles of the destination's rows, tiles of its columns, matrix).
__global__ void __launch_bounds__(256) pack_operand_kernel(const void* from,
                                                           Source source,
                                                           Format format,
                                                           OperandStrides strides,
                                                           int64_t group,
                                                           int64_t from_batch_stride,
                                                           int64_t from_group_stride,
                                                           bool k_contiguous,
                                                           int mn,
                                                           int k,
                                                           void* to,
                                                           PackedLayout layout) {
  __shared__ float tile[kTile][kTile + 1];
  __shared__ float table[256];
  if (source == Source::code) {
    table[threadIdx.x] = decode(format, threadIdx.x & (format.magnitude_mask() * 2 + 1));
    __syncthreads();
  }
  const bool turns = k_contiguous != layout.k_contiguous;
  const int rows =
      static_cast<int>(layout.k_contiguous ? layout.mn : layout.k);  // of the destination
  const int columns = static_cast<int>(layout.k_contiguous ? layout.k : layout.mn);
  const int row0 = blockIdx.x * kTile;
  const int column0 = blockIdx.y * kTile;
  const int lane = threadIdx.x % kTile;
  const int64_t base = matrix_offset(blockIdx.z, group, from_batch_stride, from_group_stride);
  for (int i = threadIdx.x / kTile; i < kTile; i += 256 / kTile) {
    // Lanes run along the source's contiguous dimension.
    const int row = row0 + (turns ? lane : i);
    const int column = column0 + (turns ? i : lane);
    const int at_mn = layout.k_contiguous ? row : column;
    const int at_k = layout.k_contiguous ? column : row;
    const float value =
        at_mn < mn && at_k < k
            ? read_element(from, source, base + at_mn * strides.mn + at_k * strides.k, table)
            : 0.0f;
    tile[turns ? lane : i][turns ? i : lane] = value;
  }
  __syncthreads();
  for (int i = threadIdx.x / kTile; i < kTile; i += 256 / kTile) {
    if (row0 + i < rows && column0 + lane < columns) {
      const int64_t at = (int64_t{blockIdx.z} * rows + row0 + i) * columns + column0 + lane;
      store_value(to, layout.dtype, at, tile[i][lane]);
    }
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
  const int64_t count = matrices(x, batch);
  const auto tiles = [](int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
  if (count * rows * columns > 0) {
    pack_operand_kernel<<<dim3(tiles(rows), tiles(columns), static_cast<unsigned>(count)),
                          256,
                          0,
                          stream>>>(x.data,
                                    source_of(x.format),
                                    x.format,
                                    strides_of(x, is_a),
                                    group,
                                    x.batch_stride,
                                    x.group_stride,
                                    k_contiguous(x, is_a),
                                    static_cast<int>(mn),
                                    static_cast<int>(k),
                                    to,
                                    layout);
    HALFTONE_CUDA_CHECK_LAUNCH();
  }
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
