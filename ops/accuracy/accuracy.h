// How often the largest logit is the target's.
#pragma once

#include "core/tensor.h"

namespace halftone {

/// Number of tokens whose largest logit is the target's: [] i32.
///   logits  [..., C]  f32/bf16/f16/f64       targets  [...]  i32, ignored ones never count
/// Only the first `vocab` columns are looked at (0: all). Of equal logits the first is taken; a row
/// with a NaN is wrong. No gradient. Throws std::invalid_argument as cross_entropy does; on a GPU a
/// target outside the vocabulary is never met.
Tensor count_correct(const Tensor& logits, const Tensor& targets, int64_t vocab = 0);

namespace detail {
void count_correct_cuda(const Tensor& logits,
                        const Tensor& targets,
                        int64_t vocab,
                        const Tensor& correct);
}  // namespace detail

}  // namespace halftone
