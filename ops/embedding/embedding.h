// Rows of a table looked up by token, with position embeddings added.
#pragma once

#include <optional>

#include "core/autograd.h"

namespace halftone {

/// y[b, t] = table[tokens[b, t]] + positions[t].
///   tokens  [B, T], or any shape without positions, i32 in [0, V)
///   table   [V, C]  f32/bf16/f16/f64     positions  [P, C], P >= T, dtype of the table; or
///   undefined y       [..., C]  `dtype` (the residual stream's), or that of the table; rounded
///   once
/// Gradients: a table row gets the sum of dy over its tokens in ascending order, in f32, whatever
/// the threads; a position's is the column tree over the batch. Keeps the tokens for backward.
/// Throws std::invalid_argument on a shape or dtype mismatch, and names a token out of range; on a
/// GPU, where looking at tokens would wait, its row of y is NaN and it is left out of the gradient.
Tensor embedding(const Tensor& tokens,
                 const Tensor& table,
                 const Tensor& positions = {},
                 std::optional<DType> dtype = {});

namespace detail {
void embedding_cuda(const Tensor& tokens,
                    const Tensor& table,
                    const Tensor& positions,
                    const Tensor& y);
void table_gradient_cuda(const Tensor& tokens, const Tensor& dy, const GradSink& dtable);
void position_gradient_cuda(const Tensor& tokens, const Tensor& dy, const GradSink& dpositions);
}  // namespace detail

}  // namespace halftone
