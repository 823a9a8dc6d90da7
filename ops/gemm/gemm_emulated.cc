// A GEMM in a Tensor Core's arithmetic: every output replays the instructions of the problem's
// KOrder (gemm.h), bit for bit, on any CPU. Tiles are independent, so threads do not show.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_cpu.h"
#include "ops/gemm/gemm_epilogue.h"
#include "ops/gemm/gemm_operand.h"
#include "ops/gemm/tensor_core_strip.h"

namespace halftone::detail {
namespace {

constexpr int64_t kRows = 64;  // of a tile
constexpr int64_t kColumns = 64;
constexpr int64_t kStrips = kColumns / kStripColumns;
constexpr int64_t kDepth = 256;  // of K packed at a time, whole instructions of every unit: a strip
                                 // of B stays in the L1 cache

/// Values beside their alignment exponents, in the order of tensor_core_strip.
struct Packed {
  std::vector<float> values = std::vector<float>(kRows * kDepth);
  std::vector<int16_t> exponents = std::vector<int16_t>(kRows * kDepth);

  /// Element (i, k) of the block goes to place(i, k); the rest of [0, size) is zero.
  template <class Place>
  void fill(const GemmBlock<float>& block,
            bool k_contiguous,
            int64_t count,
            int64_t depth,
            const Format& format,
            int64_t size,
            Place place) {
    std::fill_n(values.begin(), size, 0.0f);
    std::fill_n(exponents.begin(), size, kZeroExponent);
    for (int64_t run = 0; run < (k_contiguous ? count : depth); ++run) {
      const float* from = block.data + run * block.stride;
      for (int64_t j = 0; j < (k_contiguous ? depth : count); ++j) {
        const int64_t to = k_contiguous ? place(run, j) : place(j, run);
        values[to] = from[j];
        exponents[to] = alignment_exponent(from[j], format);
      }
    }
  }
};

/// Working space of one thread. Sums lie in strips: [kStrips][kRows][kStripColumns].
struct Tile {
  static constexpr int64_t kSize = kRows * kColumns;
  std::vector<float> scratch = std::vector<float>(kRows * kDepth);
  Packed a, b;
  std::vector<float> chain = std::vector<float>(kSize);  // the accumulator of the instructions
  std::vector<float> split = std::vector<float>(kSize);  // the intervals of a split
  std::vector<float> total = std::vector<float>(kSize);
};

class EmulatedGemm {
 public:
  explicit EmulatedGemm(const GemmProblem& problem)
      : p_(problem),
        unit_(tensor_core_unit(problem.acc, problem.a.format, problem.b.format)),
        order_(k_order(problem)),
        is_promoted_(order_.promote > 0 || problem.a.scales.data != nullptr ||
                     problem.b.scales.data != nullptr),
        a_(problem.a, true, problem.group),
        b_(problem.b, false, problem.group) {}

  void compute(const GemmRegion& region) const {
    thread_local Tile tile;
    std::fill(tile.total.begin(), tile.total.end(), 0.0f);
    std::fill(tile.split.begin(), tile.split.end(), 0.0f);
    for (int64_t k = 0; k < p_.K;) {
      const int64_t end = interval_end(p_, order_, k);
      std::fill(tile.chain.begin(), tile.chain.end(), 0.0f);
      for (int64_t begin = k; begin < end; begin += kDepth) {
        run_chain(region, begin, std::min(end - begin, kDepth), tile);
      }
      close_interval(region, k, tile);
      if (end % order_.split_k == 0 || end == p_.K) {
        // No sum is -0 here, so the first split may be added to zero.
        for (int64_t i = 0; i < Tile::kSize; ++i) {
          tile.total[i] += tile.split[i];
        }
        std::fill(tile.split.begin(), tile.split.end(), 0.0f);
      }
      k = end;
    }
    std::vector<float>& rows = tile.chain;  // the sums, row by row
    for (int64_t i = 0; i < region.rows; ++i) {
      for (int64_t s = 0; s < kStrips; ++s) {
        std::copy_n(
            strip(tile.total, s, i), kStripColumns, rows.data() + i * kColumns + s * kStripColumns);
      }
    }
    finish_tile(p_, region, rows.data(), kColumns);
  }

 private:
  static float* strip(std::vector<float>& sums, int64_t s, int64_t row) {
    return sums.data() + (s * kRows + row) * kStripColumns;
  }

  /// Runs the instructions over [k0, k0 + depth) on the chain; the last is filled up with zeros.
  void run_chain(const GemmRegion& region, int64_t k0, int64_t depth, Tile& tile) const {
    const int64_t instructions = (depth + unit_.products - 1) / unit_.products;
    const int64_t padded = instructions * unit_.products;
    const int64_t strips = (region.columns + kStripColumns - 1) / kStripColumns;

    const GemmBlock<float> a =
        a_.block(region.batch, region.m0, region.rows, region.rows, k0, depth, tile.scratch.data());
    tile.a.fill(a,
                a_.k_contiguous(),
                region.rows,
                depth,
                unit_.a,
                region.rows * padded,
                [&](int64_t i, int64_t k) { return i * padded + k; });
    const GemmBlock<float> b = b_.block(
        region.batch, region.n0, region.columns, region.columns, k0, depth, tile.scratch.data());
    tile.b.fill(b,
                b_.k_contiguous(),
                region.columns,
                depth,
                unit_.b,
                strips * kStripColumns * padded,
                [&](int64_t i, int64_t k) {
                  return (i / kStripColumns * padded + k) * kStripColumns + i % kStripColumns;
                });
    for (int64_t s = 0; s < strips; ++s) {
      for (int64_t i = 0; i < region.rows; ++i) {
        tensor_core_strip(unit_,
                          instructions,
                          tile.a.values.data() + i * padded,
                          tile.a.exponents.data() + i * padded,
                          tile.b.values.data() + s * padded * kStripColumns,
                          tile.b.exponents.data() + s * padded * kStripColumns,
                          strip(tile.chain, s, i));
      }
    }
  }

  /// Adds the chain of the interval at k to its split's sum.
  void close_interval(const GemmRegion& region, int64_t k, Tile& tile) const {
    if (!is_promoted_) {
      std::swap(tile.split, tile.chain);  // the split is one interval
      return;
    }
    std::array<float, kColumns> b_scale;
    for (int64_t j = 0; j < region.columns; ++j) {
      b_scale[j] = scale_at(p_.b.scales, region.n0 + j, k);
    }
    for (int64_t i = 0; i < region.rows; ++i) {
      const float a_scale = scale_at(p_.a.scales, region.m0 + i, k);
      for (int64_t j = 0; j < region.columns; ++j) {
        const int64_t at = (j / kStripColumns * kRows + i) * kStripColumns + j % kStripColumns;
        tile.split[at] = std::fma(tile.chain[at], a_scale * b_scale[j], tile.split[at]);
      }
    }
  }

  const GemmProblem& p_;
  TensorCoreUnit unit_;
  KOrder order_;
  bool is_promoted_;
  OperandReader<float> a_;
  OperandReader<float> b_;
};

}  // namespace

void gemm_emulated(const GemmProblem& problem) {
  const EmulatedGemm gemm(problem);
  const int64_t down = (problem.M + kRows - 1) / kRows;
  const int64_t across = (problem.N + kColumns - 1) / kColumns;
  parallel_for(problem.batch * down * across, [&](int64_t index) {
    GemmRegion region;
    region.batch = index / (down * across);
    region.m0 = index / across % down * kRows;
    region.n0 = index % across * kColumns;
    region.rows = std::min(kRows, problem.M - region.m0);
    region.columns = std::min(kColumns, problem.N - region.n0);
    gemm.compute(region);
  });
  finish_column_sums(problem);
}

}  // namespace halftone::detail
