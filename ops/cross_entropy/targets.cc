#include "ops/cross_entropy/targets.h"

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/op.h"

namespace halftone {

int64_t check_targets(std::string_view op,
                      const Tensor& logits,
                      const Tensor& targets,
                      int64_t vocab) {
  check_floating(op, "logits", logits);
  HALFTONE_CHECK(logits.rank() >= 1 && logits.size(-1) >= 1,
                 op,
                 ": logits has shape ",
                 logits.shape(),
                 ", expected [..., classes] with at least one class");
  Shape tokens(std::vector<int64_t>(logits.shape().begin(), logits.shape().end() - 1));
  check_tensor(op, "targets", targets, DType::i32, tokens);
  HALFTONE_CHECK(logits.device() == targets.device(),
                 op,
                 ": logits live on ",
                 to_string(logits.device()),
                 ", targets on ",
                 to_string(targets.device()));
  const int64_t columns = logits.size(-1);
  HALFTONE_CHECK(vocab >= 0 && vocab <= columns,
                 op,
                 ": vocab is ",
                 vocab,
                 ", expected 1 to the ",
                 columns,
                 " columns of the logits, or 0 for all");
  return vocab == 0 ? columns : vocab;
}

int32_t count_valid_targets(std::string_view op, const Tensor& targets, int64_t vocab) {
  const int32_t* target = targets.data<int32_t>();
  int32_t count = 0;
  for (int64_t token = 0; token < targets.numel(); ++token) {
    const int32_t t = target[token];
    HALFTONE_CHECK(t == kIgnoreTarget || (t >= 0 && t < vocab),
                   op,
                   ": target ",
                   t,
                   " of token ",
                   token,
                   " is outside [0, ",
                   vocab,
                   ") and not ",
                   kIgnoreTarget,
                   " (ignored)");
    count += t != kIgnoreTarget;
  }
  return count;
}

}  // namespace halftone
