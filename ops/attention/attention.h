// Multi-head self-attention, op by op: the exact path, whose every step has the same bits on CPU
// and GPU. Products run through the GEMM in the activation format; scores stay in FP32 until after
// the softmax.
#pragma once

#include <string>

#include "core/recipe.h"
#include "core/tensor.h"
#include "ops/dropout/dropout.h"

namespace halftone {

struct AttentionOptions {
  int64_t heads = 1;
  bool causal = true;         // query i sees keys 0 to i; else every key
  GemmPrecision precision{};  // of all its products: resolve_attention(recipe)
  Dropout dropout{};          // of the probabilities
  bool training = false;      // whether dropout happens
  std::string gemm_kernel{};  // empty: chosen
  std::string path{};         // the module's, named where a forced kernel fails
};

/// y = softmax(q k^T / sqrt(d)) v, for each sequence and head.
///   qkv  [B, T, 3 C]  f32/bf16/f16 (or f64: gradient checks): q, k and v of all heads one after
///   the y    [B, T, C]    other, head h at columns h d to (h + 1) d of each, d = C / heads
/// Scores and softmax are f32 (row tree), scaled after the product; probabilities are rounded to
/// the dtype of qkv, before and after dropout, whose element is ((b heads + h) T + query) T + key.
/// A row of scores of -infinity gives zeros. Keeps qkv and the probabilities [B, heads, T, T] for
/// backward; there the scores' gradient is rounded to the dtype of qkv too, as it feeds two
/// products. Throws std::invalid_argument where shapes, heads or the precision do not fit. Source:
/// Vaswani et al. 2017, arXiv:1706.03762, eq. 1.
Tensor attention(const Tensor& qkv, const AttentionOptions& options);

namespace detail {

/// The extents of an attention, checked. Throws std::invalid_argument.
struct AttentionShape {
  int64_t batch, length, heads, head_size;
  int64_t columns() const { return heads * head_size; }
};
AttentionShape attention_shape(std::string_view op, const Tensor& qkv, int64_t heads);

}  // namespace detail

}  // namespace halftone
