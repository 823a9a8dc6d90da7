// Text from a decoder, one token at a time: the logits of the last position, sharpened by a
// temperature, cut to the most likely tokens, and a draw that depends on the seed and the token's
// number alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/gpt.h"

namespace halftone {

struct SamplerOptions {
  double temperature = 1.0;  // divides the logits; 0: always the most likely token
  int64_t top_k = 0;         // as many of the most likely tokens; 0: all
  uint64_t seed = 1;
};

/// The token that `uniform`, in [0, 1), picks from softmax(logits / temperature) among the top_k
/// largest logits; of equal logits the smaller token counts as larger. Computed in double. Throws
/// std::invalid_argument on a logit that is not finite, or an empty span.
int32_t pick_token(std::span<const double> logits, const SamplerOptions& options, double uniform);

/// Continues a text of tokens.
class Sampler {
 public:
  /// `model` outlives the sampler. `prompt` holds at least one token of the vocabulary.
  Sampler(Gpt& model, std::vector<int32_t> prompt, const SamplerOptions& options);

  /// The next token, which joins the text. The model sees as much of the end of the text as fits
  /// its context. Opens a StepScope.
  int32_t next();

 private:
  Gpt& model_;
  std::vector<int32_t> text_;
  SamplerOptions options_;
  uint64_t drawn_ = 0;
};

}  // namespace halftone
