#include "ops/cross_entropy/cross_entropy.h"

#include "core/math.h"
#include "core/reduce.h"
#include "ops/cross_entropy/targets.h"
#include "ops/op.h"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

// What backward needs of each token beside its logits: p[c] = e^(logits[c] - shift) * inverse_sum.
struct TokenStatistics {
  Tensor shift;
  Tensor inverse_sum;
};

// The sum of the token losses.
template <class T>
ComputeType<T> token_losses(const Tensor& logits,
                            const Tensor& targets,
                            int64_t vocab,
                            const TokenStatistics& statistics) {
  using C = ComputeType<T>;
  const int64_t tokens = targets.numel();
  const int64_t columns = logits.size(-1);
  const Tensor losses = Tensor::empty({tokens}, kDTypeOf<C>, {}, MemoryCategory::workspace);
  C* loss = losses.data<C>();
  for_rows(tokens,
           vocab,
           [=,
            x = logits.data<T>(),
            target = targets.data<int32_t>(),
            shift = statistics.shift.data<C>(),
            inverse_sum = statistics.inverse_sum.data<C>()](int64_t token) {
             loss[token] = C(0);
             if (target[token] == kIgnoreTarget) {
               return;
             }
             const T* row = x + token * columns;
             const SoftmaxRow<C> s = softmax_row<C>(
                 vocab, [row](int64_t c) { return widen(row[c]); }, [](int64_t, C) {});
             shift[token] = softmax_shift(s.max);
             inverse_sum[token] = s.inverse_sum;
             loss[token] = math::log(s.sum) - (widen(row[target[token]]) - shift[token]);
           });
  return row_sum<C>(tokens, [=](int64_t token) { return loss[token]; });
}

// dlogits[c] = (p[c] - [c is the target]) * weight.
template <class T>
void logits_gradient(const Tensor& logits,
                     const Tensor& targets,
                     int64_t vocab,
                     const TokenStatistics& statistics,
                     ComputeType<T> weight,
                     const GradSink& dlogits) {
  using C = ComputeType<T>;
  const int64_t columns = logits.size(-1);
  const T* x = logits.data<T>();
  const int32_t* target = targets.data<int32_t>();
  const C* shifts = statistics.shift.data<C>();
  const C* inverse_sums = statistics.inverse_sum.data<C>();
  with_sink<T>(dlogits, [&]<bool accumulate>(auto* out) {
    for_rows(targets.numel(), columns, [=](int64_t token) {
      auto* g = out + token * columns;
      const auto zero = [g](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          put<accumulate>(g[c], C(0));
        }
      };
      const int64_t t = target[token];
      if (t == kIgnoreTarget) {
        zero(0, columns);
        return;
      }
      const T* row = x + token * columns;
      const auto probability = [row, shift = shifts[token], r = inverse_sums[token]](int64_t c) {
        return math::exp(widen(row[c]) - shift) * r;
      };
      const auto others = [=](int64_t begin, int64_t end) {
        put_run<accumulate>(
            g + begin, end - begin, [=](int64_t c) { return probability(begin + c) * weight; });
      };
      others(0, t);
      put<accumulate>(g[t], (probability(t) - C(1)) * weight);
      others(t + 1, vocab);
      zero(vocab, columns);
    });
  });
}

}  // namespace

CrossEntropy cross_entropy(const Tensor& logits,
                           const Tensor& targets,
                           const CrossEntropyOptions& options) {
  const int64_t vocab = check_targets("cross_entropy", logits, targets, options.vocab);
  require_cpu("cross_entropy", logits);
  const DType dtype = compute_dtype(logits.dtype());
  Tensor weight = options.weight;
  if (weight.defined()) {
    check_tensor("cross_entropy", "weight", weight, DType::f32, {});
  }
  const int32_t count = count_valid_targets("cross_entropy", targets, vocab);
  const TokenStatistics statistics{Tensor::empty({targets.numel()}, dtype),
                                   Tensor::empty({targets.numel()}, dtype)};

  CrossEntropy result{
      Tensor::empty({}, dtype), Tensor::empty({}, dtype), Tensor::from<int32_t>({count}, {})};
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const C sum = token_losses<T>(logits, targets, vocab, statistics);
    *result.sum.data<C>() = sum;
    *result.loss.data<C>() = count == 0         ? C(0)
                             : weight.defined() ? sum * C(*weight.data<float>())
                                                : math::divide(sum, C(count));
  });

  record({logits},
         result.loss,
         [logits = logits.detach(), targets, vocab, statistics, weight, count](
             const Tensor& dy, const GradSink& dlogits) {
           dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
             using C = ComputeType<T>;
             const C of_token = weight.defined() ? C(*weight.data<float>())
                                                 : math::divide(C(1), C(std::max(count, 1)));
             logits_gradient<T>(
                 logits, targets, vocab, statistics, *dy.data<C>() * of_token, dlogits);
           });
         });
  return result;
}

}  // namespace halftone
