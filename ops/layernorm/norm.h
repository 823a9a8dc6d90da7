// What layernorm, rmsnorm and residual_layernorm share: rows made to have a mean square of one,
// with or without their mean taken away first, and scaled by learned factors. Statistics are FP32
// whatever is stored. The mean is taken relative to the row's first element, and the variance of
// the centred row: a mean far larger than the spread costs nothing. Sums over a row meet in the row
// tree; those of dgamma and dbeta in the lane tree (core/lane_tree.h).
#pragma once

#include <string_view>

#include "ops/op.h"

namespace halftone {

/// A normalisation's inputs. beta, where there is none, and residual are undefined.
struct Norm {
  std::string_view op;
  bool centered;  // layernorm: the mean is taken away
  float eps;
  Tensor gamma;  // [C]
  Tensor beta;   // [C] or undefined
  DType dtype;   // of y
};

/// Kept for backward, [rows], f32 or f64: xhat = ((x - x[first]) - mean) * rstd where centred, else
/// x * rstd.
struct NormStatistics {
  Tensor mean;
  Tensor rstd;
};

/// Throws std::invalid_argument unless x is [..., C], C >= 1, and gamma and beta fit.
void check_norm(const Norm& norm, const Tensor& x);

/// y = xhat * gamma + beta, recorded. With a residual and branch given, x is first written as their
/// sum, rounded to the dtype of x.
Tensor normalize(const Norm& norm,
                 const Tensor& x,
                 const Tensor& residual = {},
                 const Tensor& branch = {});

namespace detail {

void normalize_cuda(const Norm& norm,
                    const Tensor& x,
                    const Tensor& residual,
                    const Tensor& branch,
                    const NormStatistics& statistics,
                    const Tensor& y);
void normalize_backward_cuda(const Norm& norm,
                             const Tensor& x,
                             const NormStatistics& statistics,
                             const Tensor& dy,
                             const GradSink& dx,
                             const GradSink& dgamma,
                             const GradSink& dbeta);

}  // namespace detail
}  // namespace halftone
