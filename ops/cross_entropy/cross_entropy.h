// Softmax and cross-entropy in one op. The loss is FP32 whatever the logits, so that a loss scale
// cannot overflow it. For accumulation over micro-batches of different numbers of tokens, the
// caller gives the weight of one token (1 / all valid targets of the step, times the loss scale)
// through memory: the sum of the micro-batches' losses is then the loss of the whole step.
#pragma once

#include "core/autograd.h"

namespace halftone {

/// The target that counts for nothing.
inline constexpr int32_t kIgnoreTarget = -100;

struct CrossEntropyOptions {
  int64_t vocab = 0;  // columns that count; the rest is padding. 0: all of them
  Tensor weight{};    // [] f32: of one token. Undefined: 1 / number of valid targets
};

struct CrossEntropy {
  Tensor loss;   // []  f32 (f64 for f64): weight * sum. Backward starts here
  Tensor sum;    // []  like loss: of -log p(target) over valid targets
  Tensor count;  // []  i32: valid targets
};

/// loss = weight * sum over tokens of (log sum_c e^logits[c] - logits[target]).
///   logits  [..., C]  f32/bf16/f16/f64       targets  [...]  i32 in [0, vocab) or kIgnoreTarget
/// Ignored tokens add nothing, and their gradient is zero, as is that of padding columns. Where
/// every target is ignored, loss and gradients are 0. Without a weight, loss is the mean over valid
/// targets. Token losses meet in the row tree. Keeps logits and two f32 a token for backward, which
/// recomputes the probabilities. Throws std::invalid_argument on a shape or dtype mismatch, or a
/// target outside the vocabulary; on a GPU, where looking at targets would wait, such a target
/// makes the loss and its own gradient NaN.
CrossEntropy cross_entropy(const Tensor& logits,
                           const Tensor& targets,
                           const CrossEntropyOptions& options = {});

namespace detail {

/// A call's inputs, checked, and what backward needs of each token beside its logits:
/// p[c] = e^(logits[c] - shift) * inverse_sum. Statistics are of the compute type.
struct CrossEntropyCall {
  Tensor logits;
  Tensor targets;
  int64_t vocab;
  Tensor weight;  // may be undefined
  Tensor shift;
  Tensor inverse_sum;
};

void cross_entropy_cuda(const CrossEntropyCall& call, const CrossEntropy& result);
void cross_entropy_backward_cuda(const CrossEntropyCall& call,
                                 const Tensor& count,
                                 const Tensor& dy,
                                 const GradSink& dlogits);

}  // namespace detail

}  // namespace halftone
