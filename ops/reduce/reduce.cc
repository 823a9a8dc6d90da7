#include "ops/reduce/reduce.h"

#include "core/math.h"
#include "core/reduce.h"
#include "ops/cast/cast.h"
#include "ops/op.h"

namespace halftone {
namespace {

using View = detail::ReduceView;

View view_of(const Tensor& x, Over over) {
  if (over == Over::all) {
    return {1, x.numel()};
  }
  const int64_t kept = over == Over::last ? num_rows(x) : x.size(0);
  int64_t others = 1;
  for (int i = 1; i < x.rank(); ++i) {
    others *= x.size(i);
  }
  return over == Over::last ? View{kept, x.size(-1)} : View{kept, others};
}

Shape output_shape(const Tensor& x, Over over) {
  const std::vector<int64_t>& dims = x.shape().dims();
  switch (over) {
    case Over::all:
      return {};
    case Over::last:
      return Shape(std::vector<int64_t>(dims.begin(), dims.end() - 1));
    case Over::leading:
      return Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()));
  }
  throw std::logic_error("reduce: unknown axis");
}

template <class T>
void reduce_cpu(const Tensor& x, Over over, View view, ComputeType<T> divisor, const Tensor& y) {
  using C = ComputeType<T>;
  const T* in = x.data<T>();
  C* out = y.data<C>();
  const auto at = [in](int64_t i) { return widen(in[i]); };
  switch (over) {
    case Over::all:
      out[0] = flat_sum<C>(view.columns, at);
      break;
    case Over::last:
      for_rows(view.rows, view.columns, [=](int64_t row) {
        const T* a = in + row * view.columns;
        out[row] = row_sum<C>(view.columns, [a](int64_t i) { return widen(a[i]); });
      });
      break;
    case Over::leading:
      column_sum<C>(
          view.rows,
          view.columns,
          [in, view](int64_t r, int64_t c) { return widen(in[r * view.columns + c]); },
          out);
      break;
  }
  if (divisor != C(1)) {
    for_elements(y.numel(), [=](int64_t i) { out[i] = math::divide(out[i], divisor); });
  }
}

// dx = the output's gradient, repeated, over the divisor.
template <class T>
void repeat(const Tensor& dy, Over over, View view, ComputeType<T> divisor, const GradSink& dx) {
  const ComputeType<T>* g = dy.data<ComputeType<T>>();
  if (over == Over::all) {
    write_gradient<T>(dx, [v = math::divide(*g, divisor)](int64_t) { return v; });
    return;
  }
  with_sink<T>(dx, [&]<bool accumulate>(auto* out) {
    for_rows(view.rows, view.columns, [=](int64_t row) {
      auto* to = out + row * view.columns;
      const auto of_row = over == Over::last ? math::divide(g[row], divisor) : 0;
      for (int64_t c = 0; c < view.columns; ++c) {
        put<accumulate>(to[c], over == Over::last ? of_row : math::divide(g[c], divisor));
      }
    });
  });
}

Tensor reduce(std::string_view op, const Tensor& x, Over over, bool averages) {
  check_floating(op, "x", x);
  HALFTONE_CHECK(
      over == Over::all || x.rank() >= 1, op, ": x is a scalar, expected an axis to reduce over");
  const View view = view_of(x, over);
  const int64_t terms = over == Over::leading ? view.rows : view.columns;
  const double divisor = averages ? static_cast<double>(terms) : 1.0;
  Tensor y = Tensor::empty(output_shape(x, over), compute_dtype(x.dtype()), x.device());
  if (x.is_cpu()) {
    dispatch_floating(x.dtype(), op, [&]<class T>() {
      reduce_cpu<T>(x, over, view, static_cast<ComputeType<T>>(divisor), y);
    });
  } else if constexpr (kHasCuda) {
    detail::reduce_cuda(x, over, view, divisor, y);
  }
  record(
      {x}, y, [over, view, divisor, op, dtype = x.dtype()](const Tensor& dy, const GradSink& dx) {
        if (dy.is_cpu()) {
          dispatch_floating(dtype, op, [&]<class T>() {
            repeat<T>(dy, over, view, static_cast<ComputeType<T>>(divisor), dx);
          });
        } else if constexpr (kHasCuda) {
          detail::reduce_gradient_cuda(dy, over, view, divisor, dx);
        }
      });
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, Over over) { return reduce("sum", x, over, false); }

void sum_rows_into(const Tensor& x, const GradSink& sink) {
  if (!sink) {
    return;
  }
  const bool in_place = x.device().is_cuda() && sink.buffer.dtype() == DType::f32;
  if (!in_place) {
    convert_gradient(sum(x, Over::leading), sink);
  } else if constexpr (kHasCuda) {
    check_floating("sum", "x", x);
    detail::column_sums_cuda(x, view_of(x, Over::leading), sink);
  }
}

Tensor mean(const Tensor& x, Over over) { return reduce("mean", x, over, true); }

}  // namespace halftone
