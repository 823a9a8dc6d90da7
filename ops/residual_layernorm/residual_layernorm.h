// A block's output joins the residual stream, and the stream is normalised for the next block, in
// one pass over memory.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace halftone {

struct ResidualLayernorm {
  Tensor sum;  // the residual stream after the block
  Tensor y;    // its normalisation
};

/// sum = residual + branch; y = layernorm(sum, gamma, beta, eps).
///   residual, sum  [..., C]  f32/bf16/f16/f64, the same     branch  [..., C]  any of them
///   gamma, beta    [C]       the same floating dtype; beta may be undefined
///   y              [..., C]  `dtype`, or that of the branch
/// The sum is rounded on store, and what is stored is normalised: the same bits as add and
/// layernorm one after the other. Both results carry gradients. Throws std::invalid_argument on a
/// shape or dtype mismatch.
ResidualLayernorm residual_layernorm(const Tensor& residual,
                                     const Tensor& branch,
                                     const Tensor& gamma,
                                     const Tensor& beta,
                                     float eps = 1e-5f,
                                     std::optional<DType> dtype = {});

/// residual + branch alone, of the dtype of the residual stream: the last block's join, or one
/// whose norm is not a layernorm.
Tensor residual_add(const Tensor& residual, const Tensor& branch);

namespace detail {
void residual_add_cuda(const Tensor& residual, const Tensor& branch, const Tensor& sum);
}  // namespace detail

}  // namespace halftone
