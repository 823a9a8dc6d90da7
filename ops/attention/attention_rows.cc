#include "ops/attention/attention_rows.h"

#include <vector>

#include "core/reduce.h"
#include "ops/op.h"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

using detail::AttentionRows;

DropoutMask mask_of(const AttentionRows& rows) {
  return rows.drops()
             ? DropoutMask{rows.dropout.draws.now(), rows.dropout.threshold, rows.dropout.scale}
             : DropoutMask{};
}

// Dropout's factors of the first `n` keys of a row.
const float* row_factors(const AttentionRows& rows,
                         const DropoutMask& mask,
                         int64_t row,
                         int64_t n) {
  thread_local std::vector<float> factors;
  factors.resize(static_cast<size_t>(rows.length));
  const int64_t first = (rows.first_row + row) * rows.length;
  dropout_factors(mask, static_cast<uint64_t>(first), n, factors.data());
  return factors.data();
}

// dropped = p * factors over the first `n` keys, rounded; zero from there.
template <class T>
void drop_row(const float* factors, int64_t n, int64_t stride, const T* p, T* dropped) {
  for (int64_t i = 0; i < n; ++i) {
    dropped[i] = narrow<T>(widen(p[i]) * ComputeType<T>(factors[i]));
  }
  std::fill(dropped + n, dropped + stride, narrow<T>(0));
}

template <class T>
void softmax_rows(const AttentionRows& rows,
                  ComputeType<T>* scores,
                  T* probabilities,
                  T* dropped_rows) {
  using C = ComputeType<T>;
  const C scale = math::divide(C(1), math::sqrt(static_cast<C>(rows.head_size)));
  const DropoutMask mask = mask_of(rows);
  for_rows(rows.rows, rows.length, [=, &mask, &rows](int64_t row) {
    C* s = scores + row * rows.stride;
    T* p = probabilities + row * rows.stride;
    const int64_t n = rows.visible(row);
    for (int64_t i = 0; i < n; ++i) {
      s[i] *= scale;
    }
    const C inverse_sum = softmax_row<C>(
                              n, [s](int64_t i) { return s[i]; }, [s](int64_t i, C e) { s[i] = e; })
                              .inverse_sum;
    put_run<false>(p, n, [=](int64_t i) { return s[i] * inverse_sum; });
    std::fill(p + n, p + rows.stride, narrow<T>(C(0)));
    if (dropped_rows != nullptr) {
      drop_row(
          row_factors(rows, mask, row, n), n, rows.stride, p, dropped_rows + row * rows.stride);
    }
  });
}

template <class T>
void softmax_rows_backward(const AttentionRows& rows,
                           const T* probabilities,
                           ComputeType<T>* gradient,
                           T* dscores,
                           T* dropped_rows) {
  using C = ComputeType<T>;
  const C scale = math::divide(C(1), math::sqrt(static_cast<C>(rows.head_size)));
  const DropoutMask mask = mask_of(rows);
  for_rows(rows.rows, rows.length, [=, &mask, &rows](int64_t row) {
    const T* p = probabilities + row * rows.stride;
    C* g = gradient + row * rows.stride;
    T* ds = dscores + row * rows.stride;
    const int64_t n = rows.visible(row);
    if (dropped_rows != nullptr) {
      const float* factors = row_factors(rows, mask, row, n);
      drop_row(factors, n, rows.stride, p, dropped_rows + row * rows.stride);
      for (int64_t i = 0; i < n; ++i) {
        g[i] *= C(factors[i]);
      }
    }
    const C dot = row_sum<C>(n, [=](int64_t i) { return widen(p[i]) * g[i]; });
    put_run<false>(ds, n, [=](int64_t i) { return widen(p[i]) * (g[i] - dot) * scale; });
    std::fill(ds + n, ds + rows.stride, narrow<T>(C(0)));
  });
}

template <class T>
T* optional_data(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

void detail::attention_softmax_cpu(const AttentionRows& rows,
                                   const Tensor& scores,
                                   const Tensor& probabilities,
                                   const Tensor& dropped) {
  dispatch_floating(probabilities.dtype(), "attention", [&]<class T>() {
    softmax_rows<T>(
        rows, scores.data<ComputeType<T>>(), probabilities.data<T>(), optional_data<T>(dropped));
  });
}

void detail::attention_softmax_backward_cpu(const AttentionRows& rows,
                                            const Tensor& probabilities,
                                            const Tensor& gradient,
                                            const Tensor& dscores,
                                            const Tensor& dropped) {
  dispatch_floating(probabilities.dtype(), "attention", [&]<class T>() {
    softmax_rows_backward<T>(rows,
                             probabilities.data<T>(),
                             gradient.data<ComputeType<T>>(),
                             dscores.data<T>(),
                             optional_data<T>(dropped));
  });
}

}  // namespace halftone
