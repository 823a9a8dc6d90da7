// The CPU's fast GEMM. Eigen multiplies blocks; which blocks, and the order in which an output is
// added up, is fixed here, so that neither the tile grid nor threads nor caches show in the bits
// (gemm_cpu.h states the order). That holds because each product handed to Eigen is one block of
// its own scheme: at most kDepth deep, below its block depth for the cache sizes set here, and
// padded to whole register tiles of every instruction set, whose kernel adds in ascending k.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "ops/gemm/gemm_cpu.h"
#include "ops/gemm/gemm_epilogue.h"
#include "ops/gemm/gemm_operand.h"

namespace halftone::detail {
namespace {

constexpr int64_t kDepth = 256;  // products per call of Eigen
constexpr int64_t kWide =
    48;  // a multiple of 3 registers of SSE, AVX and AVX-512, in float and in double
constexpr int64_t kNarrow = 4;  // Eigen's register tile is 3 registers by 4
constexpr int64_t kMaxRows = 256;
constexpr int64_t kMaxColumns = 384;

int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }
int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

/// The tile grid over one matrix. It does not show in the result, so it may follow the number of
/// threads.
struct Grid {
  int64_t tile_rows;
  int64_t tile_columns;
  int64_t down;
  int64_t across;
};

Grid choose_grid(const GemmProblem& p) {
  int64_t down = ceil_div(p.M, kMaxRows);
  int64_t across = ceil_div(p.N, kMaxColumns);
  const int64_t wanted = num_threads() == 1 ? 1 : 4 * num_threads();
  while (p.batch * down * across < wanted) {
    const int64_t rows = ceil_div(p.M, down);
    const int64_t columns = ceil_div(p.N, across);
    if (columns >= rows && columns > 2 * kWide) {
      across = ceil_div(p.N, round_up(ceil_div(columns, 2), kWide));
    } else if (rows > kWide) {
      down *= 2;
    } else {
      break;
    }
  }
  Grid grid;
  grid.tile_rows = round_up(ceil_div(p.M, down), kNarrow);
  grid.tile_columns = round_up(ceil_div(p.N, across), kWide);
  grid.down = ceil_div(p.M, grid.tile_rows);
  grid.across = ceil_div(p.N, grid.tile_columns);
  return grid;
}

/// Working space of one thread, kept from call to call.
template <class T>
struct Scratch {
  std::vector<T> a, b, product, sum;
};

template <class T>
T* room(std::vector<T>& space, int64_t size) {
  if (static_cast<int64_t>(space.size()) < size) {
    space.resize(size);
  }
  return space.data();
}

template <class T, int kOrder>
using Matrix = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>,
                          Eigen::Unaligned,
                          Eigen::OuterStride<>>;

/// product[rows][columns] += A block * B block, as Eigen's column-major [columns, rows] += B^T *
/// A^T.
template <class T>
void multiply_add(const GemmBlock<T>& a,
                  bool a_k_contiguous,
                  const GemmBlock<T>& b,
                  bool b_k_contiguous,
                  int64_t rows,
                  int64_t columns,
                  int64_t depth,
                  T* product) {
  using Product = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  Eigen::Map<Product> out(product, columns, rows);
  const auto with_left = [&](const auto& left) {
    const Eigen::OuterStride<> stride(a.stride);
    if (a_k_contiguous) {
      out.noalias() += left * Matrix<T, Eigen::ColMajor>(a.data, depth, rows, stride);
    } else {
      out.noalias() += left * Matrix<T, Eigen::RowMajor>(a.data, depth, rows, stride);
    }
  };
  const Eigen::OuterStride<> stride(b.stride);
  if (b_k_contiguous) {
    with_left(Matrix<T, Eigen::RowMajor>(b.data, columns, depth, stride));
  } else {
    with_left(Matrix<T, Eigen::ColMajor>(b.data, columns, depth, stride));
  }
}

template <class T>
class EigenGemm {
 public:
  explicit EigenGemm(const GemmProblem& problem)
      : p_(problem),
        a_(problem.a, true),
        b_(problem.b, false),
        order_{.instruction_k = 1,
               .split_k = std::max<int64_t>(problem.K, 1),
               .promote = problem.promote},
        is_scaled_(problem.a.scales.data != nullptr || problem.b.scales.data != nullptr) {}

  void compute(const GemmRegion& tile) const {
    thread_local Scratch<T> scratch;
    const int64_t rows = round_up(tile.rows, kNarrow);
    const int64_t columns = round_up(tile.columns, kWide);
    T* product = room(scratch.product, rows * columns);
    std::fill_n(product, rows * columns, T{0});
    if (!is_scaled_) {
      add_products(tile, 0, p_.K, scratch, product);
      finish_tile(p_, tile, product, columns);
      return;
    }
    T* sum = room(scratch.sum, rows * columns);
    std::fill_n(sum, rows * columns, T{0});
    for (int64_t k = 0; k < p_.K;) {
      const int64_t end = interval_end(p_, order_, k);
      add_products(tile, k, end, scratch, product);
      add_scaled(tile, k, product, columns, sum);
      k = end;
    }
    finish_tile(p_, tile, sum, columns);
  }

 private:
  void add_products(
      const GemmRegion& tile, int64_t begin, int64_t end, Scratch<T>& scratch, T* product) const {
    const int64_t rows = round_up(tile.rows, kNarrow);
    const int64_t columns = round_up(tile.columns, kWide);
    const int64_t step = p_.promote > 0 ? std::min(p_.promote, kDepth) : kDepth;
    for (int64_t k = begin; k < end; k += step) {
      const int64_t depth = std::min(step, end - k);
      const GemmBlock<T> a =
          a_.block(tile.batch, tile.m0, tile.rows, rows, k, depth, room(scratch.a, rows * depth));
      const GemmBlock<T> b = b_.block(
          tile.batch, tile.n0, tile.columns, columns, k, depth, room(scratch.b, columns * depth));
      multiply_add(a, a_.k_contiguous(), b, b_.k_contiguous(), rows, columns, depth, product);
    }
  }

  /// sum = fma(product, RN(s_a * s_b), sum) with the scales of the interval at k; product goes back
  /// to zero.
  void add_scaled(const GemmRegion& tile, int64_t k, T* product, int64_t stride, T* sum) const {
    std::vector<T> b_scale(tile.columns);
    for (int64_t j = 0; j < tile.columns; ++j) {
      b_scale[j] = scale_at(p_.b.scales, tile.n0 + j, k);
    }
    for (int64_t i = 0; i < tile.rows; ++i) {
      const T a_scale = scale_at(p_.a.scales, tile.m0 + i, k);
      T* product_row = product + i * stride;
      T* sum_row = sum + i * stride;
      for (int64_t j = 0; j < tile.columns; ++j) {
        sum_row[j] = std::fma(product_row[j], a_scale * b_scale[j], sum_row[j]);
      }
    }
    std::fill_n(product, round_up(tile.rows, kNarrow) * stride, T{0});
  }

  const GemmProblem& p_;
  OperandReader<T> a_;
  OperandReader<T> b_;
  KOrder order_;
  bool is_scaled_;
};

template <class T>
void run(const GemmProblem& p) {
  const EigenGemm<T> gemm(p);
  const Grid grid = choose_grid(p);
  parallel_for(p.batch * grid.down * grid.across, [&](int64_t index) {
    GemmRegion tile;
    tile.batch = index / (grid.down * grid.across);
    tile.m0 = index / grid.across % grid.down * grid.tile_rows;
    tile.n0 = index % grid.across * grid.tile_columns;
    tile.rows = std::min(grid.tile_rows, p.M - tile.m0);
    tile.columns = std::min(grid.tile_columns, p.N - tile.n0);
    gemm.compute(tile);
  });
}

}  // namespace

void gemm_eigen(const GemmProblem& problem) {
  static const bool fixed_caches = [] {
    Eigen::setCpuCacheSizes(
        64 << 10, 1 << 20, 32 << 20);  // kDepth fits them for every register width
    return true;
  }();
  static_cast<void>(fixed_caches);
  if (problem.M > 0) {
    if (problem.d_dtype == DType::f64) {
      run<double>(problem);
    } else {
      run<float>(problem);
    }
  }
  finish_column_sums(problem);
}

}  // namespace halftone::detail
