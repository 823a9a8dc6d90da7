// The CPU's fast GEMM. Eigen multiplies blocks; which blocks, and the order in which an output is
// added up, is fixed here, so that neither the tile grid nor threads nor caches show in the bits
// (gemm_cpu.h states the order). That holds because each product handed to Eigen is one block of
// its own scheme: at most kDepth deep, below its block depth for the cache sizes set here, and
// padded to whole register tiles of every instruction set, whose kernel adds in ascending k.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/integer.h"
#include "core/parallel.h"
#include "ops/gemm/gemm_cpu.h"
#include "ops/gemm/gemm_epilogue.h"
#include "ops/gemm/gemm_operand.h"

namespace halftone::detail {
namespace {

constexpr int64_t kDepth = 256;  // products per call of Eigen
// Eigen's register tile is 3 vectors by 4. Of M and N the one is called wide, the other narrow.
constexpr int64_t kWide = 48;  // 3 vectors of AVX-512 floats, and a multiple of every lesser one
constexpr int64_t kNarrow = 4;
constexpr int64_t kMaxWide = 384;  // of a tile: operands and sums stay in the L2 cache
constexpr int64_t kMaxNarrow = 256;

/// N is the wide dimension, as rows of D are contiguous then, unless padding it would cost too
/// much.
bool is_n_wide(const GemmProblem& p) {
  const int64_t n_wide = round_up(p.N, kWide) * round_up(p.M, kNarrow);
  const int64_t m_wide = round_up(p.M, kWide) * round_up(p.N, kNarrow);
  return m_wide > n_wide / 2;
}

/// The tile grid over one matrix. It does not show in the result, so it may follow the number of
/// threads: a few tiles for each, so that they finish together.
struct Grid {
  int64_t wide, narrow;              // of one tile
  int64_t wide_tiles, narrow_tiles;  // in the matrix
};

Grid choose_grid(int64_t wide, int64_t narrow, int64_t batch) {
  const int64_t wanted = num_threads() == 1 ? 1 : 4 * num_threads();
  Grid g{.wide = std::min(kMaxWide, round_up(wide, kWide)),
         .narrow = std::min(kMaxNarrow, round_up(narrow, kNarrow)),
         .wide_tiles = 0,
         .narrow_tiles = 0};
  while (true) {
    g.wide_tiles = ceil_div(wide, g.wide);
    g.narrow_tiles = ceil_div(narrow, g.narrow);
    if (batch * g.wide_tiles * g.narrow_tiles >= wanted) {
      break;
    }
    if (g.wide >= g.narrow && g.wide > 2 * kWide) {
      g.wide = round_up(g.wide / 2, kWide);
    } else if (g.narrow > kWide) {
      g.narrow = round_up(g.narrow / 2, kNarrow);
    } else {
      break;
    }
  }
  // The same number of tiles, evened out.
  g.wide = round_up(ceil_div(wide, g.wide_tiles), kWide);
  g.narrow = round_up(ceil_div(narrow, g.narrow_tiles), kNarrow);
  g.wide_tiles = ceil_div(wide, g.wide);
  g.narrow_tiles = ceil_div(narrow, g.narrow);
  return g;
}

/// Working space of one thread, kept from call to call.
template <class T>
struct Scratch {
  std::vector<T> wide, narrow, product, sum, transposed;
};

template <class T>
T* room(std::vector<T>& space, int64_t size) {
  if (static_cast<int64_t>(space.size()) < size) {
    space.resize(size);
  }
  return space.data();
}

/// One operand's part in a tile.
template <class T>
struct Side {
  const OperandReader<T>& reader;
  const GemmScales& scales;
  int64_t begin;
  int64_t count;
  int64_t padded;
};

template <class T, int kOrder>
using Matrix = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>,
                          Eigen::Unaligned,
                          Eigen::OuterStride<>>;

/// product [narrow][wide] += narrow operand * wide operand over [k, k + depth), as Eigen's
/// column-major [wide, narrow].
template <class T>
void multiply_add(int64_t batch,
                  const Side<T>& wide,
                  const Side<T>& narrow,
                  int64_t k,
                  int64_t depth,
                  Scratch<T>& scratch,
                  T* product) {
  const auto with_matrix = [&](const Side<T>& side, std::vector<T>& space, auto&& use) {
    const GemmBlock<T> block = side.reader.block(
        batch, side.begin, side.count, side.padded, k, depth, room(space, side.padded * depth));
    const Eigen::OuterStride<> stride(block.stride);
    if (side.reader.k_contiguous()) {
      use(Matrix<T, Eigen::RowMajor>(block.data, side.padded, depth, stride));
    } else {
      use(Matrix<T, Eigen::ColMajor>(block.data, side.padded, depth, stride));
    }
  };
  using Product = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  Eigen::Map<Product> out(product, wide.padded, narrow.padded);
  with_matrix(wide, scratch.wide, [&](const auto& left) {
    with_matrix(narrow, scratch.narrow, [&](const auto& right) {
      out.noalias() += left * right.transpose();
    });
  });
}

template <class T>
class EigenGemm {
 public:
  explicit EigenGemm(const GemmProblem& problem)
      : p_(problem),
        a_(problem.a, true, problem.group),
        b_(problem.b, false, problem.group),
        order_{.instruction_k = 1, .split_k = problem.K, .promote = problem.promote},
        is_scaled_(problem.a.scales.data != nullptr || problem.b.scales.data != nullptr),
        is_n_wide_(is_n_wide(problem)) {}

  void run() const {
    const Grid grid =
        is_n_wide_ ? choose_grid(p_.N, p_.M, p_.batch) : choose_grid(p_.M, p_.N, p_.batch);
    const int64_t tiles = grid.wide_tiles * grid.narrow_tiles;
    parallel_for(p_.batch * tiles, [&](int64_t index) {
      const int64_t wide = index % grid.wide_tiles * grid.wide;
      const int64_t narrow = index / grid.wide_tiles % grid.narrow_tiles * grid.narrow;
      GemmRegion region;
      region.batch = index / tiles;
      region.m0 = is_n_wide_ ? narrow : wide;
      region.n0 = is_n_wide_ ? wide : narrow;
      region.rows = std::min(is_n_wide_ ? grid.narrow : grid.wide, p_.M - region.m0);
      region.columns = std::min(is_n_wide_ ? grid.wide : grid.narrow, p_.N - region.n0);
      compute(region);
    });
  }

 private:
  void compute(const GemmRegion& region) const {
    thread_local Scratch<T> scratch;
    const auto side = [&](bool is_b, int64_t multiple) {
      const int64_t count = is_b ? region.columns : region.rows;
      return Side<T>{.reader = is_b ? b_ : a_,
                     .scales = is_b ? p_.b.scales : p_.a.scales,
                     .begin = is_b ? region.n0 : region.m0,
                     .count = count,
                     .padded = round_up(count, multiple)};
    };
    const Side<T> wide = side(is_n_wide_, kWide);
    const Side<T> narrow = side(!is_n_wide_, kNarrow);
    T* sums = add_up(region.batch, wide, narrow, scratch);
    int64_t stride = wide.padded;
    if (!is_n_wide_) {
      T* rows = room(scratch.transposed, region.rows * region.columns);
      for (int64_t m = 0; m < region.rows; ++m) {
        for (int64_t n = 0; n < region.columns; ++n) {
          rows[m * region.columns + n] = sums[n * stride + m];
        }
      }
      sums = rows;
      stride = region.columns;
    }
    finish_tile(p_, region, sums, stride);
  }

  /// The products of a tile, [narrow.padded][wide.padded], in scratch.
  T* add_up(int64_t batch, const Side<T>& wide, const Side<T>& narrow, Scratch<T>& scratch) const {
    const int64_t size = wide.padded * narrow.padded;
    T* product = room(scratch.product, size);
    std::fill_n(product, size, T{0});
    const int64_t step = p_.promote > 0 ? std::min(p_.promote, kDepth) : kDepth;
    const auto add_products = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; k += step) {
        multiply_add(batch, wide, narrow, k, std::min(step, end - k), scratch, product);
      }
    };
    if (!is_scaled_) {
      add_products(0, p_.K);
      return product;
    }
    T* sum = room(scratch.sum, size);
    std::fill_n(sum, size, T{0});
    for (int64_t k = 0; k < p_.K;) {
      const int64_t end = interval_end(p_, order_, k);
      add_products(k, end);
      add_scaled(wide, narrow, k, product, sum);
      k = end;
    }
    return sum;
  }

  /// sum = fma(product, RN(s_a * s_b), sum) with the scales of the interval at k; product goes back
  /// to zero.
  static void add_scaled(
      const Side<T>& wide, const Side<T>& narrow, int64_t k, T* product, T* sum) {
    std::array<T, kMaxWide> wide_scale;
    for (int64_t j = 0; j < wide.count; ++j) {
      wide_scale[j] = scale_at(wide.scales, wide.begin + j, k);
    }
    for (int64_t i = 0; i < narrow.count; ++i) {
      const T narrow_scale = scale_at(narrow.scales, narrow.begin + i, k);
      T* product_row = product + i * wide.padded;
      T* sum_row = sum + i * wide.padded;
      for (int64_t j = 0; j < wide.count; ++j) {
        sum_row[j] = std::fma(product_row[j], narrow_scale * wide_scale[j], sum_row[j]);
        product_row[j] = T{0};
      }
    }
  }

  const GemmProblem& p_;
  OperandReader<T> a_;
  OperandReader<T> b_;
  KOrder order_;
  bool is_scaled_;
  bool is_n_wide_;
};

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
      EigenGemm<double>(problem).run();
    } else {
      EigenGemm<float>(problem).run();
    }
  }
  finish_column_sums(problem);
}

}  // namespace halftone::detail
