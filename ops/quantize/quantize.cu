// Quantisation on a GPU in three launches: the largest magnitude of each block, the scales, the
// values. Maxima are compared as the bits of magnitudes, so atomics give the same in any order.
#include "core/scales.h"
#include "ops/op.cuh"
#include "ops/quantize/quantize.h"

namespace halftone {
namespace {

using detail::BlockGrid;
using detail::DelayedAmax;

constexpr int kThreads = 256;
constexpr int64_t kTileRows = 64;  // a thread looks at so many elements of a column

// Neighbouring columns of a warp that always share a block: they meet by shuffles before memory.
int columns_together(const BlockGrid& grid) {
  int together = 32;
  while (grid.column_blocks > 1 && grid.block_columns % together != 0) {
    together /= 2;
  }
  return together;
}

__device__ uint32_t largest_of(uint32_t value, int together) {
  for (int stride = together / 2; stride > 0; stride /= 2) {
    value = max(value, __shfl_xor_sync(0xffffffffu, value, stride));
  }
  return value;
}

// amax[block] and *whole (where it is wanted) from zero. A block of threads takes tiles of 64 rows
// and 256 columns, a thread one column of a tile.
template <class T>
__global__ void amax_kernel(
    BlockGrid grid, int together, const T* x, uint32_t* amax, uint32_t* whole) {
  const int64_t tiles_across = (grid.columns + kThreads - 1) / kThreads;
  const int64_t tiles = (grid.rows + kTileRows - 1) / kTileRows * tiles_across;
  uint32_t of_all = 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t column = tile % tiles_across * kThreads + threadIdx.x;
    const int64_t first = tile / tiles_across * kTileRows;
    const int64_t last = min(grid.rows, first + kTileRows);
    const bool inside = column < grid.columns;
    const int64_t column_block = column / grid.block_columns;
    int64_t row = first;
    while (row < last) {  // rows of one block at a time
      const int64_t row_block = row / grid.block_rows;
      const int64_t end = min(last, (row_block + 1) * grid.block_rows);
      uint32_t largest = 0;
      for (; row < end; ++row) {
        const float value = inside ? widen(x[row * grid.columns + column]) : 0.0f;
        largest = max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
      }
      of_all = max(of_all, largest);
      largest = largest_of(largest, together);
      if (inside && threadIdx.x % together == 0) {
        atomicMax(&amax[row_block * grid.column_blocks + column_block], largest);
      }
    }
  }
  if (whole != nullptr) {
    of_all = largest_of(of_all, 32);
    if (threadIdx.x % 32 == 0) {
      atomicMax(whole, of_all);
    }
  }
}

struct ScaleRules {
  Scaling scaling;
  ScaleRule scale;
  Format format;
  DelayedAmax delayed;
};

__global__ void scales_kernel(
    BlockGrid grid, ScaleRules rules, const uint32_t* amax, const uint32_t* whole, float* scales) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (rules.scaling == Scaling::delayed) {  // one block, or none
    if (thread == 0) {
      const float of_tensor = rules.delayed(std::bit_cast<float>(*whole));
      if (grid.num_blocks() > 0) {
        scales[0] = block_scale(rules.scale, rules.format, of_tensor);
      }
    }
    return;
  }
  for (int64_t i = thread; i < grid.num_blocks(); i += stride) {
    const float of_block = std::bit_cast<float>(amax[i]);
    float scale = 0.0f;
    if (rules.scaling == Scaling::nvfp4) {
      const float g = nvfp4_tensor_scale(rules.format, std::bit_cast<float>(*whole));
      scale = nvfp4_block_scale(nvfp4_block_code(rules.format, of_block, g), g);
    } else {
      scale = block_scale(rules.scale, rules.format, of_block);
    }
    scales[i / grid.column_blocks * grid.row_stride + i % grid.column_blocks * grid.column_stride] =
        scale;
  }
}

struct ValueRules {
  BlockGrid grid;
  const float* scales;  // null: values as they are
  Format format;
  Rounding rounding;
  CountedStream draws;  // read by stochastic rounding alone
};

template <class T, class Code>
struct RoundElements {
  ValueRules rules;
  const T* x;
  Code* out;  // uint8_t and uint16_t: codes; float: rounded values

  template <int N>
  __device__ void operator()(int64_t i) const {
    T values[N];
    device::load(x + i, values);
    int64_t row = i;
    int64_t column = device::split(row, rules.grid.columns);
    int64_t block = -1;
    float reciprocal = 1.0f;
    PhiloxBlock draws{};
    RandomStream stream{};
    if (rules.rounding == Rounding::stochastic) {
      stream = rules.draws.now();
    }
    Code codes[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (rules.scales != nullptr) {
        const int64_t here = row / rules.grid.block_rows * rules.grid.row_stride +
                             column / rules.grid.block_columns * rules.grid.column_stride;
        if (here != block) {
          block = here;
          reciprocal = reciprocal_scale(rules.scales[here]);
        }
      }
      if (rules.rounding == Rounding::stochastic && (j % 4 == 0)) {
        draws = stream.block(static_cast<uint64_t>(i + j) / 4);
      }
      const uint32_t draw = draws.word[N == 1 ? i % 4 : j % 4];
      const float value =
          rules.scales == nullptr ? widen(values[j]) : widen(values[j]) * reciprocal;
      const uint32_t code = encode(rules.format, value, rules.rounding, Overflow::standard, draw);
      if constexpr (std::is_same_v<Code, float>) {
        codes[j] = decode(rules.format, code);
      } else {
        codes[j] = static_cast<Code>(code);
      }
      if (++column == rules.grid.columns) {
        column = 0;
        ++row;
      }
    }
    device::store(codes, out + i);
  }
};

template <class Code>
void round_values(const Tensor& x, const ValueRules& rules, void* values) {
  dispatch_gpu(x.dtype(), "quantize", [&]<class T>() {
    constexpr int kPack = pack_of(std::min(sizeof(T), sizeof(Code)));
    auto* out = static_cast<Code*>(values);
    launch_elements<kPack>(
        x.numel(), RoundElements<T, Code>{rules, x.data<T>(), out}, {x.raw(), out});
  });
}

void set_scales(const Tensor& x,
                const OperandPrecision& p,
                const QuantizeOptions& options,
                const BlockGrid& grid,
                float* scales) {
  // The blocks' maxima, then the tensor's.
  const Tensor maxima =
      Tensor::zeros({grid.num_blocks() + 1}, DType::i32, x.device(), MemoryCategory::workspace);
  auto* amax = static_cast<uint32_t*>(maxima.raw());
  uint32_t* whole = amax + grid.num_blocks();
  const bool needs_whole = p.scaling == Scaling::nvfp4 || p.scaling == Scaling::delayed;
  const int64_t tiles =
      (grid.rows + kTileRows - 1) / kTileRows * ((grid.columns + kThreads - 1) / kThreads);
  dispatch_gpu(x.dtype(), "quantize", [&]<class T>() {
    cuda::launch(amax_kernel<T>,
                 {cuda::blocks_for(tiles, 1), kThreads},
                 grid,
                 columns_together(grid),
                 x.data<T>(),
                 amax,
                 needs_whole ? whole : nullptr);
  });
  ScaleRules rules{p.scaling, p.scale, p.format, {}};
  if (p.scaling == Scaling::delayed) {
    rules.delayed = detail::delayed_amax(*options.history, options.observe);
  }
  cuda::launch(scales_kernel,
               {cuda::blocks_for(std::max<int64_t>(1, grid.num_blocks()), kThreads), kThreads},
               grid,
               rules,
               amax,
               whole,
               scales);
}

__global__ void push_amax_kernel(float* amax, int64_t length, int64_t* pushed, float* pending) {
  detail::push_amax(amax, length, pushed, pending);
}

}  // namespace

void detail::quantize_cuda(const Tensor& x,
                           const OperandPrecision& p,
                           const QuantizeOptions& options,
                           const BlockGrid& grid,
                           const QuantizedMatrix& q) {
  ValueRules rules{grid, nullptr, p.format, p.round, {}};
  if (p.scaling != Scaling::none) {
    float* scales = q.scales.data<float>();
    set_scales(x, p, options, grid, scales);
    rules.scales = scales;
  }
  if (p.round == Rounding::stochastic) {
    rules.draws = options.random.counted(options.purpose);
  }
  switch (size_of(q.values.dtype())) {
    case 1:
      return round_values<uint8_t>(x, rules, q.values.raw());
    case 2:
      return round_values<uint16_t>(x, rules, q.values.raw());
    default:
      return round_values<float>(x, rules, q.values.raw());
  }
}

void detail::push_amax_cuda(AmaxHistory& history) {
  cuda::launch(push_amax_kernel,
               {1, 1},
               history.amax.data<float>(),
               history.amax.numel(),
               history.pushed.data<int64_t>(),
               history.pending.data<float>());
}

}  // namespace halftone
