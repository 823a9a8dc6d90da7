// What attention does to rows of scores between its products: scale, mask, softmax, dropout, and
// the gradient of all that. The products are in attention.cc.
#pragma once

#include <cstdint>

#include "core/autograd.h"
#include "ops/dropout/dropout.h"

namespace halftone::detail {

/// The scores of some sequences of a batch, [sequences, heads, length, stride]: one row a query,
/// whose elements from `length` to `stride` (a multiple of 8) are no keys.
struct AttentionRows {
  int64_t rows = 0;
  int64_t length = 0;
  int64_t stride = 0;
  int64_t head_size = 1;  // scores are divided by its root
  int64_t first_row = 0;  // in the whole batch: where dropout's elements are counted from
  bool causal = true;
  CountedDropout dropout{};

  bool drops() const { return dropout.threshold != 0; }
  /// Keys that the query of a row sees.
  HALFTONE_HD int64_t visible(int64_t row) const { return causal ? row % length + 1 : length; }
};

/// Probabilities from unscaled scores, which are used up; and in `dropped` the probabilities after
/// dropout, rounded again, where there is any. Keys not seen and elements behind the keys get zero.
///   scores  f32 (f64);  probabilities, dropped  f32/bf16/f16 (f64)
void attention_softmax_cpu(const AttentionRows& rows,
                           const Tensor& scores,
                           const Tensor& probabilities,
                           const Tensor& dropped);
void attention_softmax_cuda(const AttentionRows& rows,
                            const Tensor& scores,
                            const Tensor& probabilities,
                            const Tensor& dropped);

/// The gradient of the unscaled scores, rounded to the probabilities' dtype, from that of the
/// (dropped) probabilities, `gradient`, which is used up; and `dropped` again, where there is
/// dropout.
void attention_softmax_backward_cpu(const AttentionRows& rows,
                                    const Tensor& probabilities,
                                    const Tensor& gradient,
                                    const Tensor& dscores,
                                    const Tensor& dropped);
void attention_softmax_backward_cuda(const AttentionRows& rows,
                                     const Tensor& probabilities,
                                     const Tensor& gradient,
                                     const Tensor& dscores,
                                     const Tensor& dropped);

}  // namespace halftone::detail
