// Layer normalisation.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace halftone {

/// Layer normalisation over the last axis: y = (x - mean) * rstd * gamma + beta.
///   x      [..., C]  f32/bf16/f16/f64     gamma, beta  [C]  the same floating dtype; beta may be
///   y      [..., C]  `dtype`, or that of x                  undefined (zero)
/// Statistics accumulate in f32 (f64 for f64), the mean relative to the row's first element; y is
/// rounded once, on store. Keeps x and two f32 a row for backward. eps is added to the variance.
/// Throws std::invalid_argument on a shape or dtype mismatch.
/// Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3. Variance is the biased one (divide by
/// C).
Tensor layernorm(const Tensor& x,
                 const Tensor& gamma,
                 const Tensor& beta,
                 float eps = 1e-5f,
                 std::optional<DType> dtype = {});

}  // namespace halftone
