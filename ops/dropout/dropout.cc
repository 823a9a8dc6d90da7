#include "ops/dropout/dropout.h"

#include <cmath>

#include "ops/op.h"

namespace halftone {
namespace {

// Draws and factors of one piece of a tensor: small enough for the stack and a cache.
constexpr int64_t kPiece = 2048;

// out[i] = in[i] * factor, or 0 where the factor is.
template <bool accumulate, class T, class S>
void apply(const DropoutMask& mask, int64_t n, const T* in, S* out) {
  parallel_for_range(n, kPiece, [=](int64_t begin, int64_t end) {
    float factors[kPiece];
    dropout_factors(mask, static_cast<uint64_t>(begin), end - begin, factors);
    using C = ComputeType<T>;
    for (int64_t i = begin; i < end; ++i) {
      const float factor = factors[i - begin];
      const C scaled = widen(in[i]) * C(factor);
      put<accumulate>(out[i], factor == 0.0f ? C(0) : scaled);  // a dropped NaN is gone
    }
  });
}

}  // namespace

CountedDropout count_dropout(std::string_view op, const Dropout& dropout) {
  const float p = dropout.p;
  HALFTONE_CHECK(p >= 0.0f && p <= 1.0f, op, ": dropout probability ", p, " is outside [0, 1]");
  if (p == 0.0f) {
    return {};
  }
  check_tensor(op, "dropout's counters", dropout.random.counters, DType::i64, {2});
  return {dropout.random.counted(dropout.purpose),
          static_cast<uint64_t>(std::nearbyint(static_cast<double>(p) * 0x1p32)),
          p == 1.0f ? 0.0f : 1.0f / (1.0f - p)};
}

KeptDropout keep_dropout(std::string_view op, const Dropout& dropout, Device device) {
  const CountedDropout now = count_dropout(op, dropout);
  if (now.threshold == 0) {
    return {};
  }
  const Tensor& given = dropout.random.counters;
  HALFTONE_CHECK(given.device() == device,
                 op,
                 ": dropout's counters live on ",
                 to_string(given.device()),
                 ", expected ",
                 to_string(device),
                 " as the elements do");
  const Tensor counters = empty_like(given);
  copy(given, counters);
  return {{{now.draws.key, counters.data<int64_t>()}, now.threshold, now.scale}, counters};
}

DropoutMask make_dropout_mask(std::string_view op, const Dropout& dropout) {
  const CountedDropout counted = count_dropout(op, dropout);
  if (counted.threshold == 0) {
    return {};
  }
  require_cpu(op, dropout.random.counters);
  return {counted.draws.now(), counted.threshold, counted.scale};
}

void dropout_factors(const DropoutMask& mask, uint64_t first, int64_t n, float* factors) {
  if (mask.threshold == 0) {
    std::fill_n(factors, n, mask.scale);
    return;
  }
  uint32_t draws[kPiece];
  const auto last_dropped = static_cast<uint32_t>(mask.threshold - 1);
  for (int64_t done = 0; done < n; done += kPiece) {
    const int64_t count = std::min(kPiece, n - done);
    fill_draws(mask.stream, first + static_cast<uint64_t>(done), static_cast<size_t>(count), draws);
    for (int64_t i = 0; i < count; ++i) {
      factors[done + i] = draws[i] > last_dropped ? mask.scale : 0.0f;
    }
  }
}

Tensor dropout(const Tensor& x, const Dropout& dropout, bool training) {
  check_floating("dropout", "x", x);
  if (!training || dropout.p == 0.0f) {
    return x;
  }
  Tensor y = empty_like(x);
  if (x.is_cpu()) {
    const DropoutMask mask = make_dropout_mask("dropout", dropout);
    dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
      apply<false>(mask, x.numel(), x.data<T>(), y.data<T>());
    });
    record({x}, y, [mask](const Tensor& dy, const GradSink& dx) {
      dispatch_floating(dy.dtype(), "dropout", [&]<class T>() {
        with_sink<T>(dx, [&]<bool accumulate>(auto* out) {
          apply<accumulate>(mask, dy.numel(), dy.data<T>(), out);
        });
      });
    });
  } else if constexpr (kHasCuda) {
    const KeptDropout kept = keep_dropout("dropout", dropout, x.device());
    detail::dropout_cuda(kept.counted, x, y, false);
    record({x}, y, [kept](const Tensor& dy, const GradSink& dx) {
      detail::dropout_cuda(kept.counted, dy, dx.buffer, dx.accumulate);
    });
  }
  return y;
}

}  // namespace halftone
