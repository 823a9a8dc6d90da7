// The reduction trees of core/reduce.h over whole tensors on a GPU. value(row, column) gives an
// element in FP32; sums are FP32, divided by `divisor` where it is not 1.
#pragma once

#include "core/cuda/launch.cuh"
#include "core/cuda/reduce.cuh"
#include "core/math.h"
#include "core/tensor.h"

namespace halftone::device {

inline constexpr int kMaxRowWarps = 16;     // warps that share a row, a chunk at a time
inline constexpr int kColumnsOfBlock = 32;  // columns whose panel a block sums
inline constexpr int kSixteens = kColumnPanel / 16;

__device__ inline float quotient(float sum, float divisor) {
  return divisor == 1.0f ? sum : math::divide(sum, divisor);
}

/// A block takes a row; shared memory holds its chunks' sums.
template <class Value>
__global__ void row_sums_kernel(
    int64_t rows, int64_t columns, Value value, float divisor, float* sums) {
  extern __shared__ float chunk_sums[];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float sum = block_row_sum<float>(
        columns, [&](int64_t i) { return value(row, i); }, chunk_sums);
    if (threadIdx.x == 0) {
      sums[row] = quotient(sum, divisor);
    }
    __syncthreads();  // before the next row's chunks overwrite this one's
  }
}

/// A warp takes a chunk of the only row.
template <class Value>
__global__ void chunk_sums_kernel(int64_t n, Value value, float* sums) {
  const int64_t chunks = (n + kRowChunk - 1) / kRowChunk;
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / kWarpSize;
  for (int64_t chunk = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarpSize; chunk < chunks;
       chunk += warps) {
    const int64_t begin = chunk * kRowChunk;
    const float sum = warp_chunk_sum<float>(
        chunk_length(n, begin), [&](int64_t i) { return value(int64_t{0}, begin + i); });
    if (threadIdx.x % kWarpSize == 0) {
      sums[chunk] = sum;
    }
  }
}

/// Where the sums of columns go, over the divisor; added to what is there where it accumulates.
struct ColumnSums {
  float* sums;
  float divisor;
  bool accumulate;

  __device__ void put(int64_t column, float sum) const {
    const float value = quotient(sum, divisor);
    sums[column] = accumulate ? sums[column] + value : value;
  }
};

/// Values that come `kPack` neighbours of a row at a time: value.pack(row, column) gives them as
/// stored, and widened(pack, j) one of them.
template <class Value>
concept PackedValue = requires {
  Value::kPack;
};

/// A block of 32 x 8 threads sums 32 columns of a panel, a thread 16 rows of a column. `panels` is
/// null where the only panel's sums are the columns'.
template <class Value>
__global__ void panel_sums_kernel(
    int64_t rows, int64_t columns, Value value, float* panels, ColumnSums to) {
  __shared__ float sixteens[kSixteens][kColumnsOfBlock];
  wait_for_inputs();
  const int lane = static_cast<int>(threadIdx.x) % kColumnsOfBlock;
  const int sixteen = static_cast<int>(threadIdx.x) / kColumnsOfBlock;
  const int64_t column_blocks = (columns + kColumnsOfBlock - 1) / kColumnsOfBlock;
  const int64_t tasks = (rows + kColumnPanel - 1) / kColumnPanel * column_blocks;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t panel = task / column_blocks;
    const int64_t column = task % column_blocks * kColumnsOfBlock + lane;
    const int64_t first = panel * kColumnPanel + 16 * sixteen;
    if (column < columns) {
      sixteens[sixteen][lane] =
          sixteen_row_sum<float>(rows - first, [&](int64_t r) { return value(first + r, column); });
    }
    __syncthreads();
    if (sixteen == 0 && column < columns) {
      const float sum = panel_of_sixteens(&sixteens[0][lane], kColumnsOfBlock);
      if (panels == nullptr) {
        to.put(column, sum);
      } else {
        panels[panel * columns + column] = sum;
      }
    }
    __syncthreads();
  }
}

/// The same by packs: `columns` is a multiple of Value::kPack.
template <PackedValue Value>
__global__ void __launch_bounds__(kSixteens* kWarpSize) packed_panel_sums_kernel(
    int64_t rows, int64_t columns, Value value, float* panels, ColumnSums to) {
  constexpr int kPack = Value::kPack;
  constexpr int kColumns = kPack * kWarpSize;
  constexpr int kPitch = kWarpSize + kWarpSize / kPack;  // [j][lane], read as [lane][j]
  __shared__ float sixteens[kSixteens][kPack * kPitch];
  wait_for_inputs();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int sixteen = static_cast<int>(threadIdx.x) / kWarpSize;
  const auto column_blocks = static_cast<uint32_t>((columns + kColumns - 1) / kColumns);
  const int64_t panel = blockIdx.x / column_blocks;
  const int64_t first_column = int64_t{blockIdx.x % column_blocks} * kColumns;
  const int64_t column = first_column + lane * kPack;
  const int64_t first = panel * kColumnPanel + 16 * sixteen;
  typename Value::Packed packs[16] = {};
#pragma unroll
  for (int r = 0; r < 16; ++r) {
    if (first + r < rows && column < columns) {
      packs[r] = value.pack(first + r, column);
    }
  }
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    sixteens[sixteen][j * kPitch + lane] = sixteen_row_sum<float>(
        rows - first, [&](int64_t r) { return Value::widened(packs[r], j); });
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kSixteens * kWarpSize) {
    const int64_t c = first_column + i;
    if (c < columns) {
      const float sum =
          panel_of_sixteens(&sixteens[0][i % kPack * kPitch + i / kPack], kPack * kPitch);
      if (panels == nullptr) {
        to.put(c, sum);
      } else {
        panels[panel * columns + c] = sum;
      }
    }
  }
}

/// from[0] + from[stride] + ..., `count` of them in ascending order; 0 for none. Batches are loaded
/// together, or each addition would wait for memory.
template <class T>
__device__ T ascending_sum(int64_t count, const T* from, int64_t stride) {
  constexpr int kBatch = 32;
  T sum = count == 0 ? T(0) : from[0];
  int64_t i = 1;
  for (; i + kBatch <= count; i += kBatch) {
    T batch[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      batch[k] = from[(i + k) * stride];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      sum += batch[k];
    }
  }
  for (; i < count; ++i) {
    sum += from[i * stride];
  }
  return sum;
}

/// The sum of column c: the panels' sums, added in ascending order.
inline __global__ void add_panels_kernel(int64_t panels,
                                         int64_t columns,
                                         const float* partial,
                                         ColumnSums to) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < columns; c += threads) {
    to.put(c, ascending_sum(panels, partial + c, columns));
  }
}

/// The grid whose blocks take a row each.
inline cuda::Grid grid_of_rows(int64_t rows, int64_t columns) {
  const int64_t chunks = std::max<int64_t>(1, (columns + kRowChunk - 1) / kRowChunk);
  const int warps = static_cast<int>(std::min<int64_t>(chunks, kMaxRowWarps));
  return {
      cuda::blocks_for(rows, 1), warps * kWarpSize, static_cast<size_t>(chunks) * sizeof(float)};
}

/// sums[row] = the row tree of row `row`.
template <class Value>
void row_sums(int64_t rows, int64_t columns, const Value& value, float divisor, float* sums) {
  cuda::launch(
      row_sums_kernel<Value>, grid_of_rows(rows, columns), rows, columns, value, divisor, sums);
}

struct Stored {
  const float* values;
  __device__ float operator()(int64_t, int64_t i) const { return values[i]; }
};

/// sums[0] = the flat tree of value(0, 0) to value(0, n - 1).
template <class Value>
void flat_sum(int64_t n, const Value& value, float divisor, float* sum, Device device) {
  const int64_t chunks = (n + kRowChunk - 1) / kRowChunk;
  const Tensor partial = Tensor::empty({chunks}, DType::f32, device, MemoryCategory::workspace);
  constexpr int kThreads = 256;
  cuda::launch(chunk_sums_kernel<Value>,
               {cuda::blocks_for(chunks, kThreads / kWarpSize), kThreads},
               n,
               value,
               partial.data<float>());
  row_sums(1, chunks, Stored{partial.data<float>()}, divisor, sum);
}

/// sums[c] = the column tree of column c, or += it.
template <class Value>
void column_sums(int64_t rows,
                 int64_t columns,
                 const Value& value,
                 float divisor,
                 float* sums,
                 Device device,
                 bool accumulate = false) {
  const ColumnSums to{sums, divisor, accumulate};
  const int64_t panels = (rows + kColumnPanel - 1) / kColumnPanel;
  const Tensor partial = Tensor::empty(
      {panels == 1 ? 0 : panels, columns}, DType::f32, device, MemoryCategory::workspace);
  float* sums_of_panels = panels == 1 ? nullptr : partial.data<float>();
  const auto launch = [&](auto* kernel, int64_t columns_of_block) {
    const int64_t column_blocks = (columns + columns_of_block - 1) / columns_of_block;
    cuda::launch(
        kernel,
        {.blocks = panels * column_blocks, .threads = kSixteens * kWarpSize, .early = true},
        rows,
        columns,
        value,
        sums_of_panels,
        to);
  };
  bool packed = false;
  if constexpr (PackedValue<Value>) {
    packed = value.aligned && columns % Value::kPack == 0;
    if (packed) {
      launch(packed_panel_sums_kernel<Value>, Value::kPack * kWarpSize);
    }
  }
  if (!packed) {
    launch(panel_sums_kernel<Value>, kColumnsOfBlock);
  }
  if (panels == 1) {
    return;
  }
  constexpr int kThreads = kWarpSize;  // few columns, many panels: spread over the device
  cuda::launch(add_panels_kernel,
               {cuda::blocks_for(columns, kThreads), kThreads},
               panels,
               columns,
               partial.data<float>(),
               to);
}

}  // namespace halftone::device
