#include "ops/accuracy/accuracy.h"

#include <atomic>

#include "core/reduce.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cross_entropy/targets.h"
#include "ops/op.h"

namespace halftone {

Tensor count_correct(const Tensor& logits, const Tensor& targets, int64_t vocab) {
  vocab = check_targets("count_correct", logits, targets, vocab);
  if (!logits.is_cpu()) {
    const Tensor correct = Tensor::zeros({}, DType::i32, logits.device());
    if constexpr (kHasCuda) {
      detail::count_correct_cuda(logits, targets, vocab, correct);
    }
    return correct;
  }
  count_valid_targets("count_correct", targets, vocab);
  const int64_t columns = logits.size(-1);
  std::atomic<int32_t> correct = 0;
  dispatch_floating(logits.dtype(), "count_correct", [&]<class T>() {
    const T* x = logits.data<T>();
    const int32_t* target = targets.data<int32_t>();
    for_rows(targets.numel(), vocab, [&, x, target](int64_t token) {
      const int32_t t = target[token];
      if (t == kIgnoreTarget) {
        return;
      }
      const T* row = x + token * columns;
      const auto value = [row](int64_t c) { return widen(row[c]); };
      // Nothing is larger, and nothing before it as large. A NaN maximum equals nothing.
      const auto max = row_max<ComputeType<T>>(vocab, value);
      int64_t first = 0;
      while (first < t && value(first) != max) {
        ++first;
      }
      if (first == t && value(t) == max) {
        correct.fetch_add(1, std::memory_order_relaxed);
      }
    });
  });
  return Tensor::from<int32_t>({correct.load()}, {});
}

}  // namespace halftone
