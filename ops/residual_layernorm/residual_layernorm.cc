#include "ops/residual_layernorm/residual_layernorm.h"

#include "ops/cast/cast.h"
#include "ops/layernorm/norm.h"
#include "ops/rows.h"

namespace halftone {
namespace {

void check_join(std::string_view op, const Tensor& residual, const Tensor& branch) {
  check_floating(op, "residual", residual);
  check_floating(op, "branch", branch);
  check_tensor(op, "branch", branch, branch.dtype(), residual.shape());
  HALFTONE_CHECK((residual.dtype() == DType::f64) == (branch.dtype() == DType::f64),
                 op,
                 ": residual is ",
                 residual.dtype(),
                 ", branch is ",
                 branch.dtype());
  HALFTONE_CHECK(residual.device() == branch.device(),
                 op,
                 ": residual lives on ",
                 to_string(residual.device()),
                 ", branch on ",
                 to_string(branch.device()));
}

void residual_add_cpu(const Tensor& residual, const Tensor& branch, const Tensor& sum) {
  const int64_t columns = residual.rank() == 0 ? 1 : residual.size(-1);
  dispatch_compute(residual.dtype(), [&]<class C>() {
    const Rows<C> a(residual, columns);
    const Rows<C> b(branch, columns);
    const Rows<C> out(sum, columns);
    for_rows(num_rows(residual), columns, [&](int64_t row) {
      thread_local std::vector<C> scratch;
      scratch.resize(static_cast<size_t>(2 * columns));
      C* v = scratch.data();
      C* w = v + columns;
      a.load(row, v);
      b.load(row, w);
      for (int64_t i = 0; i < columns; ++i) {
        v[i] += w[i];
      }
      out.store(row, v);
    });
  });
}

// Gives the gradient of residual + branch to either.
void record_join(const Tensor& residual, const Tensor& branch, Tensor& sum) {
  record({residual, branch}, sum, [](const Tensor& dy, const GradSink& dr, const GradSink& db) {
    convert_gradient(dy, dr);
    convert_gradient(dy, db);
  });
}

}  // namespace

ResidualLayernorm residual_layernorm(const Tensor& residual,
                                     const Tensor& branch,
                                     const Tensor& gamma,
                                     const Tensor& beta,
                                     float eps,
                                     std::optional<DType> dtype) {
  check_join("residual_layernorm", residual, branch);
  const Norm norm{.op = "residual_layernorm",
                  .centered = true,
                  .eps = eps,
                  .gamma = gamma,
                  .beta = beta,
                  .dtype = dtype.value_or(branch.dtype())};
  check_norm(norm, residual);
  ResidualLayernorm result{empty_like(residual), {}};
  record_join(residual, branch, result.sum);  // first: its backward comes after the norm's
  result.y = normalize(norm, result.sum, residual, branch);
  return result;
}

Tensor residual_add(const Tensor& residual, const Tensor& branch) {
  check_join("residual_add", residual, branch);
  Tensor sum = empty_like(residual);
  if (residual.is_cpu()) {
    residual_add_cpu(residual, branch, sum);
  } else if constexpr (kHasCuda) {
    detail::residual_add_cuda(residual, branch, sum);
  }
  record_join(residual, branch, sum);
  return sum;
}

}  // namespace halftone
