#include "ops/cross_entropy/cross_entropy.h"

#include "ops/cross_entropy/loss_row.h"
#include "ops/cross_entropy/targets.h"
#include "ops/op.h"

namespace halftone {
namespace {

using Call = detail::CrossEntropyCall;

template <class T>
[[gnu::flatten]] LossPart<ComputeType<T>> loss_row(int64_t vocab, const T* row) {
  using C = ComputeType<T>;
  thread_local std::vector<LossPart<C>> parts;
  parts.clear();
  for (int64_t begin = 0; begin < vocab; begin += kRowChunk) {
    const auto x = [from = row + begin](int64_t i) { return widen(from[i]); };
    const SoftmaxRow<C> s =
        softmax_row<C>(halftone::detail::chunk_length(vocab, begin), x, [](int64_t, C) {});
    parts.push_back({s.max, s.sum});
  }
  return join_parts<C>(static_cast<int64_t>(parts.size()),
                       [&](int64_t i) { return parts[static_cast<size_t>(i)]; });
}

template <class T>
void cross_entropy_cpu(const Call& call, const CrossEntropy& result) {
  using C = ComputeType<T>;
  const int32_t count = count_valid_targets("cross_entropy", call.targets, call.vocab);
  const int64_t tokens = call.targets.numel();
  const int64_t columns = call.logits.size(-1);
  const int64_t vocab = call.vocab;
  const Tensor losses = Tensor::empty({tokens}, kDTypeOf<C>, {}, MemoryCategory::workspace);
  C* loss = losses.data<C>();
  for_rows(tokens,
           vocab,
           [=,
            x = call.logits.data<T>(),
            target = call.targets.data<int32_t>(),
            shift = call.shift.data<C>(),
            inverse_sum = call.inverse_sum.data<C>()](int64_t token) {
             loss[token] = C(0);
             if (target[token] == kIgnoreTarget) {
               return;
             }
             const T* row = x + token * columns;
             const LossPart<C> s = loss_row(vocab, row);
             shift[token] = softmax_shift(s.max);
             inverse_sum[token] = softmax_inverse(s.sum);
             loss[token] = math::log(s.sum) - (widen(row[target[token]]) - shift[token]);
           });
  const C sum = row_sum<C>(tokens, [=](int64_t token) { return loss[token]; });
  *result.count.data<int32_t>() = count;
  *result.sum.data<C>() = sum;
  *result.loss.data<C>() = count == 0              ? C(0)
                           : call.weight.defined() ? sum * C(*call.weight.data<float>())
                                                   : math::divide(sum, C(count));
}

// dlogits[c] = (p[c] - [c is the target]) * weight.
template <class T>
void cross_entropy_backward_cpu(const Call& call, ComputeType<T> weight, const GradSink& dlogits) {
  using C = ComputeType<T>;
  const int64_t columns = call.logits.size(-1);
  const int64_t vocab = call.vocab;
  const T* x = call.logits.data<T>();
  const int32_t* target = call.targets.data<int32_t>();
  const C* shifts = call.shift.data<C>();
  const C* inverse_sums = call.inverse_sum.data<C>();
  with_sink<T>(dlogits, [&]<bool accumulate>(auto* out) {
    for_rows(call.targets.numel(), columns, [=](int64_t token) {
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

void backward(const Call& call, const Tensor& count, const Tensor& dy, const GradSink& dlogits) {
  if (!dy.is_cpu()) {
    if constexpr (kHasCuda) {
      detail::cross_entropy_backward_cuda(call, count, dy, dlogits);
    }
    return;
  }
  dispatch_floating(call.logits.dtype(), "cross_entropy", [&]<class T>() {
    using C = ComputeType<T>;
    const C of_token = call.weight.defined()
                           ? C(*call.weight.data<float>())
                           : math::divide(C(1), C(std::max(*count.data<int32_t>(), 1)));
    cross_entropy_backward_cpu<T>(call, *dy.data<C>() * of_token, dlogits);
  });
}

}  // namespace

CrossEntropy cross_entropy(const Tensor& logits,
                           const Tensor& targets,
                           const CrossEntropyOptions& options) {
  const int64_t vocab = check_targets("cross_entropy", logits, targets, options.vocab);
  if (options.weight.defined()) {
    check_tensor("cross_entropy", "weight", options.weight, DType::f32, {});
  }
  const DType dtype = compute_dtype(logits.dtype());
  const Device device = logits.device();
  const Shape tokens{targets.numel()};
  const Call call{logits.detach(),
                  targets,
                  vocab,
                  options.weight,
                  Tensor::empty(tokens, dtype, device),
                  Tensor::empty(tokens, dtype, device)};
  CrossEntropy result{Tensor::empty({}, dtype, device),
                      Tensor::empty({}, dtype, device),
                      Tensor::empty({}, DType::i32, device)};
  if (logits.is_cpu()) {
    dispatch_floating(
        logits.dtype(), "cross_entropy", [&]<class T>() { cross_entropy_cpu<T>(call, result); });
  } else if constexpr (kHasCuda) {
    detail::cross_entropy_cuda(call, result);
  }
  record({logits},
         result.loss,
         [call, count = result.count](const Tensor& dy, const GradSink& dlogits) {
           backward(call, count, dy, dlogits);
         });
  return result;
}

}  // namespace halftone
