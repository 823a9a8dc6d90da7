// Quantisation on a GPU. Small blocks and rows take one launch that reads once. What needs the
// largest magnitude of the tensor first, or of whole columns, takes three: maxima, scales, values;
// so do blocks of odd sizes and roundings other than to nearest. Maxima are compared as the bits of
// magnitudes, so atomics give the same in any order.
#include <optional>

#include "ops/quantize/blocks.cuh"

namespace halftone {
namespace {

using detail::BlockGrid;
using detail::DelayedAmax;
using device::PackedMatrix;
using device::ScaleRules;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / device::kWarpSize;

// What a block of a pass takes: 32 packs of columns and `rows` rows for each of its warps: many,
// but few enough that the blocks fill a device.
struct PassTask {
  int64_t rows;
  int64_t across, down;

  template <class T>
  static PassTask of(const PackedMatrix<T>& matrix) {
    constexpr int64_t kColumns = device::kWarpSize * PackedMatrix<T>::kPack;
    constexpr int64_t kWarpsWanted = 8192;
    const int64_t across = (matrix.columns + kColumns - 1) / kColumns;
    const int64_t rows = std::clamp<int64_t>(matrix.rows * across / kWarpsWanted / 4 * 4, 4, 64);
    return {rows, across, (matrix.rows + rows * kWarps - 1) / (rows * kWarps)};
  }

  __device__ int64_t block_down() const { return blockIdx.x / static_cast<uint32_t>(across); }
  __device__ int64_t first_row() const {
    return (block_down() * kWarps + threadIdx.x / device::kWarpSize) * rows;
  }
  template <int pack>
  __device__ int64_t column() const {
    const int64_t block_across = blockIdx.x % static_cast<uint32_t>(across);
    return (block_across * device::kWarpSize + threadIdx.x % device::kWarpSize) * pack;
  }
};

// *whole or, of every block, amax[block], from zero.
template <class T>
__global__ void amax_kernel(
    PackedMatrix<T> matrix, BlockGrid grid, PassTask task, uint32_t* amax, uint32_t* whole) {
  constexpr int kPack = PackedMatrix<T>::kPack;
  const int64_t column = task.column<kPack>();
  const int count = matrix.inside(column);
  const int64_t last = min(matrix.rows, task.first_row() + task.rows);
  for (int64_t row = task.first_row(); row < last;) {  // rows of one block at a time
    const int64_t row_block = whole != nullptr ? 0 : row / grid.block_rows;
    const int64_t end = whole != nullptr ? last : min(last, (row_block + 1) * grid.block_rows);
    device::PackMagnitudes<T> magnitudes;
#pragma unroll 4
    for (; row < end; ++row) {
      magnitudes.add(matrix.load(row * matrix.columns + column, count));
    }
    if (whole != nullptr) {
      const uint32_t largest = device::largest_of_lanes(magnitudes.largest(), device::kWarpSize);
      if (threadIdx.x % device::kWarpSize == 0) {
        atomicMax(whole, largest);
      }
      continue;
    }
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      if (j < count) {
        const int64_t column_block = (column + j) / grid.block_columns;
        atomicMax(&amax[row_block * grid.column_blocks + column_block], magnitudes.at(j));
      }
    }
  }
}

// Where columns are blocks, amax[block down][column]: so many threads would wait for each other at
// a maximum that they shared.
template <class T>
__global__ void column_amax_kernel(PackedMatrix<T> matrix, PassTask task, uint32_t* amax) {
  constexpr int kPack = PackedMatrix<T>::kPack;
  constexpr int kColumns = device::kWarpSize * kPack;
  __shared__ uint32_t of_warp[kWarps][kColumns];
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  const int64_t column = task.column<kPack>();
  const int count = matrix.inside(column);
  const int64_t last = min(matrix.rows, task.first_row() + task.rows);
  device::PackMagnitudes<T> magnitudes;
#pragma unroll 4
  for (int64_t row = task.first_row(); row < last; ++row) {
    magnitudes.add(matrix.load(row * matrix.columns + column, count));
  }
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    of_warp[threadIdx.x / device::kWarpSize][lane * kPack + j] = magnitudes.at(j);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kThreads) {
    const int64_t c = column - lane * kPack + i;
    uint32_t largest = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      largest = max(largest, of_warp[w][i]);
    }
    if (c < matrix.columns) {
      amax[task.block_down() * matrix.columns + c] = largest;
    }
  }
}

// From maxima, `copies` of which count for every block, to scales. A warp takes every 8th copy.
__global__ void scales_kernel(
    BlockGrid grid, ScaleRules rules, const uint32_t* amax, int64_t copies, float* scales) {
  __shared__ uint32_t of_warp[kWarps][device::kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / device::kWarpSize;
  const int64_t blocks = grid.num_blocks();
  const int64_t stride = int64_t{gridDim.x} * device::kWarpSize;
  for (int64_t first = int64_t{blockIdx.x} * device::kWarpSize; first < blocks; first += stride) {
    const int64_t i = first + lane;
    uint32_t largest = 0;
    if (i < blocks) {
#pragma unroll 8
      for (int64_t copy = warp; copy < copies; copy += kWarps) {
        largest = max(largest, amax[copy * blocks + i]);
      }
    }
    of_warp[warp][lane] = largest;
    __syncthreads();
    if (warp == 0 && i < blocks) {
#pragma unroll
      for (int w = 1; w < kWarps; ++w) {
        largest = max(largest, of_warp[w][lane]);
      }
      scales[i / grid.column_blocks * grid.row_stride +
             i % grid.column_blocks * grid.column_stride] = rules(largest);
    }
    __syncthreads();
  }
}

// The scale of a tensor, if it has elements.
__global__ void delayed_scale_kernel(BlockGrid grid,
                                     ScaleRules rules,
                                     DelayedAmax delayed,
                                     float* scale) {
  const float amax = delayed(std::bit_cast<float>(*rules.whole));
  if (grid.num_blocks() > 0) {
    *scale = rules(std::bit_cast<uint32_t>(amax));
  }
}

// Values by scales that are there already; without scales, values as they are.
template <class T, class Encoder>
__global__ void __launch_bounds__(kThreads, Encoder::kBatch > 1 ? 3 : 1)
    round_kernel(PackedMatrix<T> matrix,
                 BlockGrid grid,
                 PassTask task,
                 const float* scales,
                 Encoder encoder,
                 typename Encoder::Code* out) {
  constexpr int kPack = PackedMatrix<T>::kPack;
  constexpr int kBatch = Encoder::kBatch;
  const int64_t column = task.column<kPack>();
  const int count = matrix.inside(column);
  const int64_t last = min(matrix.rows, task.first_row() + task.rows);
  float reciprocals[kPack];
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    reciprocals[j] = 1.0f;
  }
  int64_t block_end = 0;
  for (int64_t first = task.first_row(); first < last; first += kBatch) {
    const int64_t at = first * matrix.columns + column;
    device::Pack<T, kPack> values[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      values[r] = matrix.load(at + r * matrix.columns, first + r < last ? count : 0);
    }
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      const int64_t row = first + r;
      if (scales != nullptr && row >= block_end && row < last) {
        const int64_t row_block = row / grid.block_rows;
        block_end = (row_block + 1) * grid.block_rows;
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          const int64_t column_block =
              min((column + j) / grid.block_columns, grid.column_blocks - 1);
          reciprocals[j] = reciprocal_scale(
              scales[row_block * grid.row_stride + column_block * grid.column_stride]);
        }
      }
      float scaled[kPack];
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        scaled[j] = widen(values[r].at(j)) * reciprocals[j];
      }
      uint32_t words[device::kWordsOf<typename Encoder::Code, kPack>];
      const int64_t here = at + r * matrix.columns;
      encoder(scaled, here, words);
      matrix.store(here, row < last ? count : 0, words, out);
    }
  }
}

// Calls body(encoder) with the fastest encoder of 8-bit codes to nearest; false if there is none.
template <class Body>
bool with_fast_encoder(const OperandPrecision& p, const Body& body) {
  if (!device::NarrowEncoder::takes(p.format, p.round)) {
    return false;
  }
  if (p.format == kE4M3) {
    return body(device::Fp8Encoder<false>());
  }
  if (p.format == kE5M2) {
    return body(device::Fp8Encoder<true>());
  }
  if (p.format == kE2M1) {
    return body(device::Fp4Encoder());
  }
  return body(device::NarrowEncoder(p.format));
}

// log2 of a block's extent in units of a tile's; nothing where such blocks do not fill tiles. The
// only block along an axis may be shorter than it looks.
std::optional<int> log2_units(int64_t extent, int64_t blocks, int64_t unit, int64_t most_units) {
  const int64_t units = (extent + unit - 1) / unit;
  const auto rounded = std::bit_ceil(static_cast<uint64_t>(units));
  const bool exact = extent == static_cast<int64_t>(rounded) * unit;
  return units <= most_units && (exact || blocks == 1) ? std::optional(std::countr_zero(rounded))
                                                       : std::nullopt;
}

// One call's work on elements of T.
template <class T>
class Quantizer {
 public:
  Quantizer(const Tensor& x,
            const OperandPrecision& p,
            const QuantizeOptions& options,
            const BlockGrid& grid,
            const QuantizedMatrix& q)
      : matrix_{x.data<T>(), grid.rows, grid.columns, grid.columns % kPack == 0},
        p_(p),
        options_(options),
        grid_(grid),
        q_(q),
        scales_(q.scales.defined() ? q.scales.data<float>() : nullptr),
        device_(x.device()) {
    for (const void* p : {x.raw(), q.values.raw()}) {
      matrix_.aligned &= reinterpret_cast<uintptr_t>(p) % device::kVectorBytes == 0;
    }
    // Where columns say nothing, rows of a width that fills warps.
    constexpr int64_t kWidth = int64_t{device::kWarpSize} * kPack;
    const bool uniform = scales_ == nullptr || whole_tensor();
    if (uniform && x.numel() % kWidth == 0 && x.numel() > 0) {
      matrix_ = {matrix_.x, x.numel() / kWidth, kWidth, true};
      grid_.block_rows = matrix_.rows;
      grid_.block_columns = matrix_.columns;
    }
  }

  void run() {
    ScaleRules rules{p_.scaling, p_.scale, p_.format, nullptr};
    Tensor whole;
    if (scales_ != nullptr && (whole_tensor() || p_.scaling == Scaling::nvfp4)) {
      whole = find_whole();
      rules.whole = static_cast<const uint32_t*>(whole.raw());
    }
    if (scales_ != nullptr) {
      if (!whole_tensor() && (by_tiles(rules) || by_rows(rules))) {
        return;
      }
      set_scales(rules);
    }
    round();
  }

 private:
  static constexpr int kPack = PackedMatrix<T>::kPack;

  bool whole_tensor() const {
    return p_.scaling == Scaling::tensor || p_.scaling == Scaling::delayed;
  }

  Tensor find_whole() const {
    const Tensor whole = Tensor::zeros({1}, DType::i32, device_, MemoryCategory::workspace);
    launch_amax(nullptr, static_cast<uint32_t*>(whole.raw()));
    return whole;
  }

  void launch_amax(uint32_t* amax, uint32_t* whole) const {
    const PassTask task = PassTask::of(matrix_);
    cuda::launch(
        amax_kernel<T>, {task.across * task.down, kThreads}, matrix_, grid_, task, amax, whole);
  }

  // Where blocks fit into tiles.
  bool by_tiles(const ScaleRules& rules) const {
    const bool columns = grid_.block_columns == 1;
    const auto log2_packs =
        columns ? std::optional(-1)
                : log2_units(grid_.block_columns, grid_.column_blocks, kPack, device::kWarpSize);
    if (!log2_packs || !matrix_.aligned) {
      return false;
    }
    if (grid_.block_rows == 1 && !columns) {
      return launch_tiles<true>(rules, 0, *log2_packs);
    }
    using Tile = device::Tile<false>;
    const auto log2_units_down =
        log2_units(grid_.block_rows, grid_.row_blocks, Tile::kRows, Tile::kWarps);
    constexpr int kLog2Unit = std::countr_zero(static_cast<unsigned>(Tile::kRows));
    return log2_units_down && launch_tiles<false>(rules, *log2_units_down + kLog2Unit, *log2_packs);
  }

  template <bool row_blocks>
  bool launch_tiles(const ScaleRules& rules, int log2_rows, int log2_packs) const {
    constexpr int64_t kColumns = int64_t{device::kWarpSize} * kPack;
    const int64_t across = (grid_.columns + kColumns - 1) / kColumns;
    const int64_t down = (grid_.rows + device::Tile<row_blocks>::kTileRows - 1) /
                         device::Tile<row_blocks>::kTileRows;
    const device::TileCut cut{log2_rows,
                              log2_packs,
                              grid_.row_blocks,
                              grid_.column_blocks,
                              grid_.row_stride,
                              grid_.column_stride,
                              static_cast<uint32_t>(across)};
    const auto launch = [&]<class Encoder>(const Encoder& encoder) {
      cuda::launch(device::quantize_tiles_kernel<row_blocks, T, Encoder>,
                   {across * down, device::Tile<row_blocks>::kWarps * device::kWarpSize},
                   matrix_,
                   cut,
                   rules,
                   encoder,
                   q_.values.template data<uint8_t>(),
                   scales_);
      return true;
    };
    if constexpr (row_blocks && std::is_same_v<T, BFloat16>) {
      const bool by_powers = p_.scale != ScaleRule::fp32 && p_.scale != ScaleRule::e4m3;
      if (p_.format == kE2M1 && p_.round == Rounding::nearest && by_powers) {
        return launch(device::Fp4PairEncoder());
      }
    }
    return with_fast_encoder(p_, launch);
  }

  // Where every row is a block.
  bool by_rows(const ScaleRules& rules) const {
    if (grid_.block_rows != 1 || grid_.column_blocks != 1) {
      return false;
    }
    int threads = device::kWarpSize;
    while (threads < device::kRowThreads &&
           grid_.columns > device::kRowPacks<T> * kPack * threads) {
      threads *= 2;
    }
    constexpr int kThreads = device::kRowThreads;
    return with_fast_encoder(p_, [&]<class Encoder>(const Encoder& encoder) {
      cuda::launch(device::quantize_rows_kernel<T, Encoder>,
                   {(grid_.rows * threads + kThreads - 1) / kThreads, kThreads},
                   matrix_,
                   threads,
                   grid_.row_stride,
                   rules,
                   encoder,
                   q_.values.template data<uint8_t>(),
                   scales_);
      return true;
    });
  }

  void set_scales(const ScaleRules& rules) const {
    if (p_.scaling == Scaling::delayed) {
      cuda::launch(delayed_scale_kernel,
                   {1, 1},
                   grid_,
                   rules,
                   detail::delayed_amax(*options_.history, options_.observe),
                   scales_);
      return;
    }
    if (whole_tensor()) {
      launch_scales(rules, rules.whole, 1);
      return;
    }
    const bool by_columns = grid_.row_blocks == 1 && grid_.block_columns == 1;
    const PassTask task = PassTask::of(matrix_);
    const int64_t copies = by_columns ? task.down : 1;
    const Shape shape{copies, grid_.num_blocks()};
    const Tensor amax = by_columns
                            ? Tensor::empty(shape, DType::i32, device_, MemoryCategory::workspace)
                            : Tensor::zeros(shape, DType::i32, device_, MemoryCategory::workspace);
    auto* words = static_cast<uint32_t*>(amax.raw());
    if (by_columns) {
      cuda::launch(
          column_amax_kernel<T>, {task.across * task.down, kThreads}, matrix_, task, words);
    } else {
      launch_amax(words, nullptr);
    }
    launch_scales(rules, words, copies);
  }

  void launch_scales(const ScaleRules& rules, const uint32_t* amax, int64_t copies) const {
    cuda::launch(scales_kernel,
                 {cuda::blocks_for(grid_.num_blocks(), device::kWarpSize), kThreads},
                 grid_,
                 rules,
                 amax,
                 copies,
                 scales_);
  }

  void round() const {
    if (q_.values.dtype() == DType::u8 &&
        with_fast_encoder(p_, [&](const auto& encoder) { return round_with(encoder); })) {
      return;
    }
    const CountedStream draws = p_.round == Rounding::stochastic
                                    ? options_.random.counted(options_.purpose)
                                    : CountedStream{};
    switch (size_of(q_.values.dtype())) {
      case 1:
        round_with(device::AnyEncoder<uint8_t>{p_.format, p_.round, draws});
        return;
      case 2:
        round_with(device::AnyEncoder<uint16_t>{p_.format, p_.round, draws});
        return;
      default:
        round_with(device::AnyEncoder<float>{p_.format, p_.round, draws});
    }
  }

  template <class Encoder>
  bool round_with(const Encoder& encoder) const {
    const PassTask task = PassTask::of(matrix_);
    cuda::launch(round_kernel<T, Encoder>,
                 {task.across * task.down, kThreads},
                 matrix_,
                 grid_,
                 task,
                 scales_,
                 encoder,
                 static_cast<typename Encoder::Code*>(q_.values.raw()));
    return true;
  }

  PackedMatrix<T> matrix_;
  const OperandPrecision& p_;
  const QuantizeOptions& options_;
  BlockGrid grid_;
  const QuantizedMatrix& q_;
  float* scales_;
  Device device_;
};

__global__ void push_amax_kernel(float* amax, int64_t length, int64_t* pushed, float* pending) {
  detail::push_amax(amax, length, pushed, pending);
}

}  // namespace

void detail::quantize_cuda(const Tensor& x,
                           const OperandPrecision& p,
                           const QuantizeOptions& options,
                           const BlockGrid& grid,
                           const QuantizedMatrix& q) {
  dispatch_gpu(
      x.dtype(), "quantize", [&]<class T>() { Quantizer<T>(x, p, options, grid, q).run(); });
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
