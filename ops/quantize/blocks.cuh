// Quantisation in one read where blocks are small: a block of threads keeps a tile in registers,
// finds the largest magnitudes of its blocks, makes their scales, one thread each, and rounds. Rows
// that are blocks of their own are read twice, the second time from a cache.
#pragma once

#include "core/scales.h"
#include "ops/quantize/packs.cuh"
#include "ops/quantize/quantize.h"

namespace halftone::device {

/// From the largest magnitude of a block to its scale.
struct ScaleRules {
  Scaling scaling;
  ScaleRule scale;
  Format format;
  const uint32_t* whole;  // nvfp4: the largest magnitude of the tensor, as bits

  __device__ float operator()(uint32_t amax) const {
    if (scaling == Scaling::nvfp4) {
      const float g = nvfp4_tensor_scale(format, std::bit_cast<float>(*whole));
      return nvfp4_block_scale(nvfp4_block_code(format, std::bit_cast<float>(amax), g), g);
    }
    return block_scale(scale, format, std::bit_cast<float>(amax));
  }
};

/// A tile: kRows rows for each of kWarps warps, 32 packs of columns. Its blocks are of 1 row, or of
/// a power of two from kRows to the whole tile; a power of two packs wide, or of 1 column.
template <bool row_blocks>
struct Tile {
  static constexpr int kRows = 8;
  static constexpr int kWarps = row_blocks ? 8 : 16;
  static constexpr int kBlocksOfSm = row_blocks ? 3 : 2;  // bounds the registers
  static constexpr int kTileRows = kRows * kWarps;
};

struct TileCut {
  int log2_rows;   // of a block
  int log2_packs;  // of a block's width; below 0: a block is one column
  int64_t row_blocks, column_blocks;
  int64_t row_stride, column_stride;  // of the scales
  uint32_t tiles_across;
};

template <bool row_blocks, class T, class Encoder>
__global__ void __launch_bounds__(Tile<row_blocks>::kWarps* kWarpSize,
                                  Tile<row_blocks>::kBlocksOfSm)
    quantize_tiles_kernel(PackedMatrix<T> matrix,
                          TileCut cut,
                          ScaleRules rules,
                          Encoder encoder,
                          uint8_t* codes,
                          float* scales) {
  using Tile = device::Tile<row_blocks>;
  constexpr int kRows = Tile::kRows;
  constexpr int kPack = PackedMatrix<T>::kPack;
  constexpr int kColumns = kWarpSize * kPack;
  constexpr int kLog2Pack = std::bit_width(static_cast<unsigned>(kPack)) - 1;
  constexpr int kLog2Columns = std::bit_width(static_cast<unsigned>(kColumns)) - 1;
  constexpr int kLog2TileRows = std::bit_width(static_cast<unsigned>(Tile::kTileRows)) - 1;
  // Of a block: first the largest magnitude, then the reciprocal of the scale, as bits. Blocks of
  // one row: [place][row], the pitch odd; else [warp][place].
  constexpr int kRowPitch = Tile::kTileRows + 1;
  __shared__ alignas(kVectorBytes)
      uint32_t of_block[row_blocks ? kWarpSize * kRowPitch : Tile::kWarps * kColumns];

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t tile_row = int64_t{blockIdx.x / cut.tiles_across} * Tile::kTileRows;
  const int64_t tile_column = int64_t{blockIdx.x % cut.tiles_across} * kColumns;
  const int64_t column = tile_column + lane * kPack;
  const int64_t row = tile_row + warp * kRows;
  const bool of_packs = cut.log2_packs >= 0;
  const int log2_width = of_packs ? cut.log2_packs + kLog2Pack : 0;
  const int own_place = of_packs ? lane >> cut.log2_packs : lane * kPack;
  const bool first_of_place = !of_packs || (own_place << cut.log2_packs) == lane;

  const int64_t at = row * matrix.columns + column;
  const int rows_inside =
      column < matrix.columns ? static_cast<int>(min(matrix.rows - row, int64_t{kRows})) : 0;
  Pack<T, kPack> values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    values[r] = matrix.load_aligned(at + r * matrix.columns, r < rows_inside);
  }
  if constexpr (row_blocks) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      PackMagnitudes<T> magnitudes;
      magnitudes.add(values[r]);
      const uint32_t largest = largest_of_lanes(magnitudes.largest(), 1 << cut.log2_packs);
      if (first_of_place) {
        of_block[own_place * kRowPitch + warp * kRows + r] = largest;
      }
    }
  } else {
    PackMagnitudes<T> magnitudes;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      magnitudes.add(values[r]);
    }
    uint32_t* own = &of_block[warp * kColumns + own_place];
    if (of_packs) {
      const uint32_t largest = largest_of_lanes(magnitudes.largest(), 1 << cut.log2_packs);
      if (first_of_place) {
        *own = largest;
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        own[j] = magnitudes.at(j);
      }
    }
  }
  __syncthreads();

  const int log2_places = kLog2Columns - log2_width;
  const int log2_down = kLog2TileRows - cut.log2_rows;
  const int warps_down = row_blocks ? 1 : (1 << cut.log2_rows) / kRows;
  for (int i = static_cast<int>(threadIdx.x); i < 1 << (log2_places + log2_down);
       i += Tile::kWarps * kWarpSize) {
    // Neighbouring threads take blocks whose scales are neighbours.
    const int down = row_blocks ? i % Tile::kTileRows : i >> log2_places;
    const int place = row_blocks ? i / Tile::kTileRows : i - (down << log2_places);
    uint32_t* of_first =
        &of_block[row_blocks ? place * kRowPitch + down : down * warps_down * kColumns + place];
    uint32_t largest = *of_first;
    for (int k = 1; k < warps_down; ++k) {
      largest = max(largest, of_first[k * kColumns]);
    }
    const int64_t row_block = (tile_row >> cut.log2_rows) + down;
    const int64_t column_block = (tile_column >> log2_width) + place;
    if (row_block < cut.row_blocks && column_block < cut.column_blocks) {
      const float scale = rules(largest);
      scales[row_block * cut.row_stride + column_block * cut.column_stride] = scale;
      *of_first = std::bit_cast<uint32_t>(reciprocal_scale(scale));
    }
  }
  __syncthreads();

  float reciprocals[row_blocks ? kRows : kPack];
  if constexpr (row_blocks) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      reciprocals[r] = std::bit_cast<float>(of_block[own_place * kRowPitch + warp * kRows + r]);
    }
  } else {
    const uint32_t* own = &of_block[warp / warps_down * warps_down * kColumns + own_place];
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      reciprocals[j] = std::bit_cast<float>(own[of_packs ? 0 : j]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    uint32_t words[kWordsOf<uint8_t, kPack>];
    const int64_t here = at + r * matrix.columns;
    if constexpr (std::is_same_v<Encoder, Fp4PairEncoder>) {
      // Of a power of two the upper half is all: a BF16 number.
      const uint32_t pair = __byte_perm(std::bit_cast<uint32_t>(reciprocals[r]), 0, 0x3232);
#pragma unroll
      for (int k = 0; k < kPack / 4; ++k) {
        words[k] = encoder({values[r].words[2 * k], values[r].words[2 * k + 1]}, pair);
      }
    } else {
      float scaled[kPack];
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        scaled[j] = widen(values[r].at(j)) * reciprocals[row_blocks ? r : j];
      }
      encoder(scaled, here, words);
    }
    if (r < rows_inside) {
      store(words, reinterpret_cast<uint32_t*>(codes + here));
    }
  }
}

/// A row is a block. Of a block of 256 threads, `threads` share a row, a multiple of 32, and keep
/// it in registers if it has at most kRowPacks<T> packs for each; else they read it again.
inline constexpr int kRowThreads = 256;
template <class T>
inline constexpr int kRowPacks = sizeof(T) == 2 ? 4 : 8;

template <class T, class Encoder>
__global__ void __launch_bounds__(kRowThreads) quantize_rows_kernel(PackedMatrix<T> matrix,
                                                                    int threads,
                                                                    int64_t scale_stride,
                                                                    ScaleRules rules,
                                                                    Encoder encoder,
                                                                    uint8_t* codes,
                                                                    float* scales) {
  constexpr int kPack = PackedMatrix<T>::kPack;
  constexpr int kPacks = kRowPacks<T>;
  __shared__ uint32_t of_warp[kRowThreads / kWarpSize];
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const int64_t row =
      int64_t{blockIdx.x} * (kRowThreads / threads) + static_cast<int>(threadIdx.x) / threads;
  const int64_t first = row * matrix.columns;
  const int stride = threads * kPack;
  const int64_t columns = row < matrix.rows ? matrix.columns : 0;
  Pack<T, kPack> packs[kPacks];
  const auto load_packs = [&](int64_t begin) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t c = begin + k * stride;
      packs[k] = matrix.load(first + c, c < columns ? matrix.inside(c) : 0);
    }
  };
  PackMagnitudes<T> magnitudes;
  for (int64_t begin = thread * kPack; begin < columns; begin += kPacks * stride) {
    load_packs(begin);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      magnitudes.add(packs[k]);
    }
  }
  uint32_t largest = largest_of_lanes(magnitudes.largest(), kWarpSize);
  if (threads > kWarpSize) {
    const int warps = threads / kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    if (threadIdx.x % kWarpSize == 0) {
      of_warp[warp] = largest;
    }
    __syncthreads();
    largest = largest_of_lanes(of_warp[warp / warps * warps + thread % warps], warps);
  }
  if (columns == 0) {
    return;
  }
  const float scale = rules(largest);
  const float reciprocal = reciprocal_scale(scale);
  if (thread == 0) {
    scales[row * scale_stride] = scale;
  }
  for (int64_t begin = thread * kPack; begin < columns; begin += kPacks * stride) {
    if (columns > kPacks * stride) {
      load_packs(begin);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t c = begin + k * stride;
      if (c < columns) {
        float scaled[kPack];
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          scaled[j] = widen(packs[k].at(j)) * reciprocal;
        }
        uint32_t words[kWordsOf<uint8_t, kPack>];
        encoder(scaled, first + c, words);
        matrix.store(first + c, matrix.inside(c), words, codes);
      }
    }
  }
}

}  // namespace halftone::device
