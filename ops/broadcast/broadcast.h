// Elementwise ops of two operands whose shapes differ: axes are aligned at the last one, and an
// axis of extent 1, or a missing one, is repeated. The gradient of a repeated operand is summed
// over the repeated axes by the fixed trees: the row tree where they come last, the flat tree where
// they are all, the column tree otherwise (rows are then the repeated axes, outermost first).
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace halftone {

struct BroadcastAxis {
  int64_t extent;
  std::array<int64_t, 2> stride;  // of each operand; 0 where it is repeated
};

/// How two operands meet: axes outermost first, neighbours fused where both operands walk them as
/// one, those of extent 1 dropped. The last axis has strides of 0 or 1.
struct BroadcastPlan {
  Shape shape;  // of the result
  std::vector<BroadcastAxis> axes;

  bool repeats(int operand) const;
};

/// Throws std::invalid_argument where dtypes or devices differ, or shapes do not meet.
BroadcastPlan plan_broadcast(std::string_view op, const Tensor& a, const Tensor& b);

/// The gradient of an operand: dy, or dy * factor where factor (the other operand) is given, summed
/// over the operand's repeated axes. Does nothing where no gradient is wanted.
void broadcast_gradient(const BroadcastPlan& plan,
                        int operand,
                        const Tensor& dy,
                        const Tensor& factor,
                        const GradSink& sink);

namespace detail {

// Calls fn(i, ia, ib) for elements i in [0, length), at most one of the strides being 0.
template <class Fn>
void broadcast_run(int64_t length, const std::array<int64_t, 2>& stride, const Fn& fn) {
  if (stride[0] == 0) {
    for (int64_t i = 0; i < length; ++i) {
      fn(i, int64_t{0}, i);
    }
  } else if (stride[1] == 0) {
    for (int64_t i = 0; i < length; ++i) {
      fn(i, i, int64_t{0});
    }
  } else {
    for (int64_t i = 0; i < length; ++i) {
      fn(i, i, i);
    }
  }
}

}  // namespace detail

/// Calls fn(i, ia, ib) for every element i of the result, ia and ib being the operands' elements.
template <class Fn>
void for_broadcast(const BroadcastPlan& plan, const Fn& fn) {
  if (plan.axes.empty()) {
    fn(int64_t{0}, int64_t{0}, int64_t{0});
    return;
  }
  const BroadcastAxis& last = plan.axes.back();
  int64_t rows = 1;
  for (size_t k = 0; k + 1 < plan.axes.size(); ++k) {
    rows *= plan.axes[k].extent;
  }
  const int64_t pieces = (last.extent + kElementGrain - 1) / kElementGrain;  // of a row
  for_rows(rows * pieces, std::min(last.extent, kElementGrain), [&](int64_t task) {
    const int64_t row = task / pieces;
    const int64_t begin = task % pieces * kElementGrain;
    int64_t a = begin * last.stride[0];
    int64_t b = begin * last.stride[1];
    int64_t rest = row;
    for (size_t k = plan.axes.size() - 1; k-- > 0;) {
      const BroadcastAxis& axis = plan.axes[k];
      a += rest % axis.extent * axis.stride[0];
      b += rest % axis.extent * axis.stride[1];
      rest /= axis.extent;
    }
    const int64_t first = row * last.extent + begin;
    detail::broadcast_run(
        std::min(kElementGrain, last.extent - begin),
        last.stride,
        [&fn, first, a, b](int64_t i, int64_t ia, int64_t ib) { fn(first + i, a + ia, b + ib); });
  });
}

namespace detail {

/// The loop of broadcast_map on a GPU: defined in ops/broadcast/broadcast.cuh, instantiated in each
/// op's .cu.
template <class F>
void broadcast_map_cuda(const BroadcastPlan& plan,
                        const Tensor& a,
                        const Tensor& b,
                        const Tensor& y);
void broadcast_gradient_cuda(const BroadcastPlan& plan,
                             int operand,
                             const Tensor& dy,
                             const Tensor& factor,
                             const GradSink& sink);

/// Neighbouring axes of a plan that one operand walks alike.
struct BroadcastSpan {
  int64_t extent;
  bool repeated;
};
std::vector<BroadcastSpan> spans_of(const BroadcastPlan& plan, int operand);

}  // namespace detail

/// y[i] = F()(a[ia], b[ib]), of the operands' dtype. F is called with ComputeType on either device.
template <class F>
Tensor broadcast_map(std::string_view op,
                     const BroadcastPlan& plan,
                     const Tensor& a,
                     const Tensor& b) {
  Tensor y = Tensor::empty(plan.shape, a.dtype(), a.device());
  if (a.is_cpu()) {
    dispatch_floating(a.dtype(), op, [&]<class T>() {
      for_broadcast(
          plan,
          [u = a.data<T>(), v = b.data<T>(), out = y.data<T>()](int64_t i, int64_t ia, int64_t ib) {
            out[i] = narrow<T>(F()(widen(u[ia]), widen(v[ib])));
          });
    });
  } else if constexpr (kHasCuda) {
    detail::broadcast_map_cuda<F>(plan, a, b, y);
  }
  return y;
}

}  // namespace halftone
