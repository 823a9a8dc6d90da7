#include "ops/broadcast/broadcast.h"

#include "core/reduce.h"
#include "ops/cast/cast.h"

namespace halftone {
namespace {

using Span = detail::BroadcastSpan;

// Where the elements with one value of the repeated (or the kept) axes start in the result.
std::vector<int64_t> offsets(const std::vector<Span>& spans, bool repeated) {
  std::vector<int64_t> result{0};
  int64_t stride = 1;
  for (const Span& span : spans) {
    stride *= span.extent;
  }
  for (const Span& span : spans) {
    stride /= std::max<int64_t>(1, span.extent);
    if (span.repeated != repeated) {
      continue;
    }
    std::vector<int64_t> next;
    for (const int64_t offset : result) {
      for (int64_t k = 0; k < span.extent; ++k) {
        next.push_back(offset + k * stride);
      }
    }
    result = std::move(next);
  }
  return result;
}

// The sums over the repeated axes of values given in the order of the result.
template <class C, class Element>
void sum_repeated(const std::vector<Span>& spans, const Element& value, C* sums) {
  if (spans.size() == 1) {
    sums[0] = flat_sum<C>(spans[0].extent, value);
  } else if (spans.size() == 2 && spans[1].repeated) {
    const int64_t n = spans[1].extent;
    for_rows(spans[0].extent, n, [=, &value](int64_t row) {
      sums[row] = row_sum<C>(n, [&value, first = row * n](int64_t i) { return value(first + i); });
    });
  } else if (spans.size() == 2) {
    const int64_t columns = spans[1].extent;
    column_sum<C>(
        spans[0].extent,
        columns,
        [columns, &value](int64_t r, int64_t c) { return value(r * columns + c); },
        sums);
  } else {
    const std::vector<int64_t> row = offsets(spans, true);
    const std::vector<int64_t> column = offsets(spans, false);
    column_sum<C>(
        static_cast<int64_t>(row.size()),
        static_cast<int64_t>(column.size()),
        [&](int64_t r, int64_t c) {
          return value(row[static_cast<size_t>(r)] + column[static_cast<size_t>(c)]);
        },
        sums);
  }
}

template <class T>
void gradient_cpu(const BroadcastPlan& plan,
                  int operand,
                  const Tensor& dy,
                  const Tensor& factor,
                  const GradSink& sink) {
  using C = ComputeType<T>;
  const T* g = dy.data<T>();
  const T* f = factor.defined() ? factor.data<T>() : nullptr;
  if (!plan.repeats(operand)) {  // its elements are the result's
    with_sink<T>(sink, [&]<bool accumulate>(auto* out) {
      for_broadcast(plan, [=](int64_t i, int64_t ia, int64_t ib) {
        put<accumulate>(out[i], widen(g[i]) * widen(f[operand == 0 ? ib : ia]));
      });
    });
    return;
  }
  const std::vector<Span> spans = detail::spans_of(plan, operand);
  const Tensor sums =
      Tensor::empty(sink.buffer.shape(), kDTypeOf<C>, {}, MemoryCategory::workspace);
  if (f == nullptr) {
    sum_repeated(
        spans, [g](int64_t i) { return widen(g[i]); }, sums.data<C>());
  } else {
    const Tensor products = Tensor::empty(dy.shape(), kDTypeOf<C>, {}, MemoryCategory::workspace);
    const C* p = products.data<C>();
    for_broadcast(plan, [=, out = products.data<C>()](int64_t i, int64_t ia, int64_t ib) {
      out[i] = widen(g[i]) * widen(f[operand == 0 ? ib : ia]);
    });
    sum_repeated(
        spans, [p](int64_t i) { return p[i]; }, sums.data<C>());
  }
  write_gradient<T>(sink, [s = sums.data<C>()](int64_t i) { return s[i]; });
}

}  // namespace

bool BroadcastPlan::repeats(int operand) const {
  return std::any_of(axes.begin(), axes.end(), [operand](const BroadcastAxis& axis) {
    return axis.stride[static_cast<size_t>(operand)] == 0;
  });
}

std::vector<Span> detail::spans_of(const BroadcastPlan& plan, int operand) {
  std::vector<Span> spans;
  for (const BroadcastAxis& axis : plan.axes) {
    const bool repeated = axis.stride[static_cast<size_t>(operand)] == 0;
    if (!spans.empty() && spans.back().repeated == repeated) {
      spans.back().extent *= axis.extent;
    } else {
      spans.push_back({axis.extent, repeated});
    }
  }
  return spans;
}

BroadcastPlan plan_broadcast(std::string_view op, const Tensor& a, const Tensor& b) {
  check_floating(op, "a", a);
  check_floating(op, "b", b);
  HALFTONE_CHECK(a.dtype() == b.dtype() && a.device() == b.device(),
                 op,
                 ": a is ",
                 a.dtype(),
                 " on ",
                 to_string(a.device()),
                 ", b is ",
                 b.dtype(),
                 " on ",
                 to_string(b.device()),
                 "; expected the same");
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> extents(static_cast<size_t>(rank));
  std::vector<BroadcastAxis> innermost_first;
  std::array<int64_t, 2> elements{1, 1};  // of each operand in the axes seen so far
  for (int k = 1; k <= rank; ++k) {
    const int64_t n = k <= a.rank() ? a.size(-k) : 1;
    const int64_t m = k <= b.rank() ? b.size(-k) : 1;
    HALFTONE_CHECK(n == m || n == 1 || m == 1,
                   op,
                   ": shapes ",
                   a.shape(),
                   " and ",
                   b.shape(),
                   " do not meet: ",
                   n,
                   " against ",
                   m,
                   " in axis ",
                   rank - k);
    const int64_t extent = n == 1 ? m : n;
    extents[static_cast<size_t>(rank - k)] = extent;
    if (extent == 1) {
      continue;
    }
    const BroadcastAxis axis{extent, {n == 1 ? 0 : elements[0], m == 1 ? 0 : elements[1]}};
    elements[0] *= n;
    elements[1] *= m;
    if (!innermost_first.empty()) {
      BroadcastAxis& inner = innermost_first.back();
      const auto continues = [&](size_t operand) {  // or both are repeated
        return axis.stride[operand] == inner.stride[operand] * inner.extent;
      };
      if (continues(0) && continues(1)) {
        inner.extent *= extent;
        continue;
      }
    }
    innermost_first.push_back(axis);
  }
  return {Shape(std::move(extents)),
          std::vector<BroadcastAxis>(innermost_first.rbegin(), innermost_first.rend())};
}

void broadcast_gradient(const BroadcastPlan& plan,
                        int operand,
                        const Tensor& dy,
                        const Tensor& factor,
                        const GradSink& sink) {
  if (!sink) {
    return;
  }
  if (!factor.defined() && !plan.repeats(operand)) {
    convert_gradient(dy, sink);
  } else if (dy.is_cpu()) {
    dispatch_floating(dy.dtype(), "broadcast", [&]<class T>() {
      gradient_cpu<T>(plan, operand, dy, factor, sink);
    });
  } else if constexpr (kHasCuda) {
    detail::broadcast_gradient_cuda(plan, operand, dy, factor, sink);
  }
}

}  // namespace halftone
