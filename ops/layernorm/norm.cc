#include "ops/layernorm/norm.h"

#include <vector>

#include "core/lane_tree.h"
#include "core/math.h"
#include "core/reduce.h"
#include "ops/rows.h"

namespace halftone {
namespace {

// A row's xhat from its elements, in place.
template <class C>
void standardize(bool centered, int64_t columns, C mean, C rstd, C* v) {
  const C shift = v[0];
  for (int64_t i = 0; i < columns; ++i) {
    v[i] = (centered ? (v[i] - shift) - mean : v[i]) * rstd;
  }
}

template <class C>
void forward(const Norm& norm,
             const Tensor& x,
             const Tensor& residual,
             const Tensor& branch,
             const NormStatistics& statistics,
             const Tensor& y) {
  const int64_t columns = x.size(-1);
  std::vector<C> gamma(static_cast<size_t>(columns));
  std::vector<C> beta(static_cast<size_t>(columns), C(0));
  Rows<C>(norm.gamma, columns).load(0, gamma.data());
  if (norm.beta.defined()) {
    Rows<C>(norm.beta, columns).load(0, beta.data());
  }
  const bool adds = residual.defined();
  const Rows<C> x_rows(x, columns);
  const Rows<C> y_rows(y, columns);
  const Rows<C> residual_rows = adds ? Rows<C>(residual, columns) : Rows<C>();
  const Rows<C> branch_rows = adds ? Rows<C>(branch, columns) : Rows<C>();
  C* means = statistics.mean.data<C>();
  C* rstds = statistics.rstd.data<C>();
  for_rows(num_rows(x), columns, [&](int64_t row) {
    thread_local std::vector<C> scratch;
    scratch.resize(static_cast<size_t>(2 * columns));
    C* v = scratch.data();
    C* w = v + columns;
    if (adds) {
      residual_rows.load(row, v);
      branch_rows.load(row, w);
      for (int64_t i = 0; i < columns; ++i) {
        v[i] += w[i];
      }
      x_rows.store(row, v);  // rounded: what a reader of x sees is what is normalised
    }
    x_rows.load(row, v);
    const C shift = v[0];
    const C n = static_cast<C>(columns);
    C mean = C(0);
    if (norm.centered) {
      mean = math::divide(row_sum<C>(columns, [=](int64_t i) { return v[i] - shift; }), n);
    }
    const C squares = norm.centered ? row_sum<C>(columns,
                                                 [=](int64_t i) {
                                                   const C c = (v[i] - shift) - mean;
                                                   return c * c;
                                                 })
                                    : row_sum<C>(columns, [=](int64_t i) { return v[i] * v[i]; });
    const C rstd = math::rsqrt(math::divide(squares, n) + static_cast<C>(norm.eps));
    standardize(norm.centered, columns, mean, rstd, v);
    const C* g = gamma.data();
    const C* b = beta.data();
    for (int64_t i = 0; i < columns; ++i) {
      v[i] = math::fma(v[i], g[i], b[i]);
    }
    y_rows.store(row, v);
    means[row] = mean;
    rstds[row] = rstd;
  });
}

// One pass over x and dy, lane by lane of the lane tree: dx row by row, and what these rows add to
// dgamma and dbeta.
template <class C>
void backward_pass(const Norm& norm,
                   const Tensor& x,
                   const NormStatistics& statistics,
                   const Tensor& dy,
                   const GradSink& dx,
                   const GradSink& dgamma,
                   const GradSink& dbeta) {
  constexpr int64_t kLanes = 8;  // of a task
  const int64_t columns = x.size(-1);
  const int64_t rows = num_rows(x);
  const int64_t tasks = (std::min<int64_t>(rows, kTreeLanes) + kLanes - 1) / kLanes;
  std::vector<C> gamma(static_cast<size_t>(columns));
  Rows<C>(norm.gamma, columns).load(0, gamma.data());
  const auto num_sums = static_cast<size_t>(std::max<int64_t>(1, tasks) * columns);
  std::vector<C> gamma_sums(dgamma ? num_sums : 0, C(0));
  std::vector<C> beta_sums(dbeta ? num_sums : 0, C(0));
  const Rows<C> x_rows(x, columns);
  const Rows<C> dy_rows(dy, columns);
  const Rows<C> dx_rows = dx ? Rows<C>(dx.buffer, columns) : Rows<C>();
  const C* means = statistics.mean.data<C>();
  const C* rstds = statistics.rstd.data<C>();
  parallel_for(tasks, [&](int64_t task) {
    thread_local std::vector<C> scratch;
    scratch.assign(static_cast<size_t>((2 * kLanes + 4) * columns), C(0));
    C* of_gamma = scratch.data();              // of each lane, dy * xhat [kLanes, columns]
    C* of_beta = of_gamma + kLanes * columns;  // dy [kLanes, columns]
    C* dy_row = of_beta + kLanes * columns;
    C* xhat = dy_row + columns;
    C* product = xhat + columns;
    C* out = product + columns;
    const C* g = gamma.data();
    const auto add_row = [&](int64_t row, int64_t lane) {
      const C rstd = rstds[row];
      x_rows.load(row, xhat);
      dy_rows.load(row, dy_row);
      standardize(norm.centered, columns, means[row], rstd, xhat);
      C* gamma_lane = of_gamma + lane * columns;
      C* beta_lane = of_beta + lane * columns;
      for (int64_t i = 0; i < columns; ++i) {
        product[i] = dy_row[i] * xhat[i];
        gamma_lane[i] += product[i];
        beta_lane[i] += dy_row[i];
      }
      if (!dx) {
        return;
      }
      const C n = static_cast<C>(columns);
      const C along =
          math::divide(row_sum<C>(columns, [=](int64_t i) { return product[i] * g[i]; }), n);
      const C mean =
          norm.centered
              ? math::divide(row_sum<C>(columns, [=](int64_t i) { return dy_row[i] * g[i]; }), n)
              : C(0);
      for (int64_t i = 0; i < columns; ++i) {
        out[i] = rstd * ((dy_row[i] * g[i] - mean) - xhat[i] * along);
      }
      dx_rows.store(row, out, dx.accumulate);
    };
    for (int64_t first = task * kLanes; first < rows; first += kTreeLanes) {
      for (int64_t lane = 0; lane < std::min(kLanes, rows - first); ++lane) {
        add_row(first + lane, lane);
      }
    }
    const auto keep = [&](C* lanes, std::vector<C>& sums) {
      if (!sums.empty()) {
        add_pairs(kLanes, columns, lanes);
        std::copy_n(lanes, columns, sums.data() + task * columns);
      }
    };
    keep(of_gamma, gamma_sums);
    keep(of_beta, beta_sums);
  });
  const auto write = [&](std::vector<C>& sums, const GradSink& sink) {
    if (sink) {
      add_pairs(tasks, columns, sums.data());
      Rows<C>(sink.buffer, columns).store(0, sums.data(), sink.accumulate);
    }
  };
  write(gamma_sums, dgamma);
  write(beta_sums, dbeta);
}

}  // namespace

void check_norm(const Norm& norm, const Tensor& x) {
  check_floating(norm.op, "x", x);
  HALFTONE_CHECK(x.rank() >= 1 && x.size(-1) >= 1,
                 norm.op,
                 ": x has shape ",
                 x.shape(),
                 ", expected [..., C] with C at least 1");
  check_floating(norm.op, "gamma", norm.gamma);
  check_tensor(norm.op, "gamma", norm.gamma, norm.gamma.dtype(), {x.size(-1)});
  if (norm.beta.defined()) {
    check_tensor(norm.op, "beta", norm.beta, norm.gamma.dtype(), {x.size(-1)});
  }
  HALFTONE_CHECK(is_floating(norm.dtype) && (x.dtype() == DType::f64) == (norm.dtype == DType::f64),
                 norm.op,
                 ": y cannot be ",
                 norm.dtype,
                 " where x is ",
                 x.dtype());
  HALFTONE_CHECK(norm.eps >= 0.0f, norm.op, ": eps is ", norm.eps, ", expected 0 or more");
}

Tensor normalize(const Norm& norm, const Tensor& x, const Tensor& residual, const Tensor& branch) {
  const DType compute = compute_dtype(x.dtype());
  const NormStatistics statistics{Tensor::empty({num_rows(x)}, compute, x.device()),
                                  Tensor::empty({num_rows(x)}, compute, x.device())};
  Tensor y = empty_like(x, norm.dtype);
  if (x.is_cpu()) {
    dispatch_compute(x.dtype(),
                     [&]<class C>() { forward<C>(norm, x, residual, branch, statistics, y); });
  } else if constexpr (kHasCuda) {
    detail::normalize_cuda(norm, x, residual, branch, statistics, y);
  }
  Norm kept = norm;
  kept.gamma = norm.gamma.detach();
  kept.beta = Tensor();
  record({x, norm.gamma, norm.beta},
         y,
         [kept, x = x.detach(), statistics](
             const Tensor& dy, const GradSink& dx, const GradSink& dgamma, const GradSink& dbeta) {
           if (x.is_cpu()) {
             dispatch_compute(x.dtype(), [&]<class C>() {
               backward_pass<C>(kept, x, statistics, dy, dx, dgamma, dbeta);
             });
           } else if constexpr (kHasCuda) {
             detail::normalize_backward_cuda(kept, x, statistics, dy, dx, dgamma, dbeta);
           }
         });
  return y;
}

}  // namespace halftone
