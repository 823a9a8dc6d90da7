// Root-mean-square normalisation.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace halftone {

/// y = x / sqrt(mean(x^2) + eps) * gamma over the last axis.
///   x  [..., C]  f32/bf16/f16/f64     gamma  [C]  any floating dtype
///   y  [..., C]  `dtype`, or that of x
/// Statistics accumulate in f32 (f64 for f64); y is rounded once, on store. Keeps x and one number
/// a row for backward. Throws std::invalid_argument on a shape or dtype mismatch. Source: Zhang &
/// Sennrich 2019, arXiv:1910.07467, eq. 4.
Tensor rmsnorm(const Tensor& x,
               const Tensor& gamma,
               float eps = 1e-5f,
               std::optional<DType> dtype = {});

}  // namespace halftone
