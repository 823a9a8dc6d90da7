#include "ops/softmax/softmax.h"

#include <vector>

#include "core/reduce.h"
#include "ops/op.h"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

template <class T>
void softmax_cpu(const Tensor& x, const Tensor& y) {
  using C = ComputeType<T>;
  const int64_t columns = x.size(-1);
  const T* in = x.data<T>();
  T* out = y.data<T>();
  for_rows(num_rows(x), columns, [=](int64_t row) {
    thread_local std::vector<C> scratch;
    scratch.resize(static_cast<size_t>(columns));
    C* e = scratch.data();
    const T* a = in + row * columns;
    T* b = out + row * columns;
    const C inverse_sum = softmax_row<C>(
                              columns,
                              [a](int64_t i) { return widen(a[i]); },
                              [e](int64_t i, C value) { e[i] = value; })
                              .inverse_sum;
    put_run<false>(b, columns, [=](int64_t i) { return e[i] * inverse_sum; });
  });
}

template <class T>
void softmax_backward_cpu(const Tensor& y, const Tensor& dy, const GradSink& dx) {
  using C = ComputeType<T>;
  const int64_t columns = y.size(-1);
  with_sink<T>(dx, [&]<bool accumulate>(auto* out) {
    for_rows(num_rows(y), columns, [=, p = y.data<T>(), g = dy.data<T>()](int64_t row) {
      const T* a = p + row * columns;
      const T* b = g + row * columns;
      auto* c = out + row * columns;
      const C dot = row_sum<C>(columns, [=](int64_t i) { return widen(a[i]) * widen(b[i]); });
      put_run<accumulate>(c, columns, [=](int64_t i) { return widen(a[i]) * (widen(b[i]) - dot); });
    });
  });
}

}  // namespace

Tensor softmax(const Tensor& x) {
  check_floating("softmax", "x", x);
  HALFTONE_CHECK(x.rank() >= 1, "softmax: x is a scalar, expected at least one axis");
  Tensor y = empty_like(x);
  if (x.is_cpu()) {
    dispatch_floating(x.dtype(), "softmax", [&]<class T>() { softmax_cpu<T>(x, y); });
  } else if constexpr (kHasCuda) {
    detail::softmax_cuda(x, y);
  }
  record({x}, y, [y = y.detach()](const Tensor& dy, const GradSink& dx) {
    if (y.is_cpu()) {
      dispatch_floating(
          y.dtype(), "softmax", [&]<class T>() { softmax_backward_cpu<T>(y, dy, dx); });
    } else if constexpr (kHasCuda) {
      detail::softmax_backward_cuda(y, dy, dx);
    }
  });
  return y;
}

}  // namespace halftone
