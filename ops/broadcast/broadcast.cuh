// Broadcasting on a GPU: where the operands' elements lie for an element of the result.
#pragma once

#include "ops/broadcast/broadcast.h"
#include "ops/op.cuh"

namespace halftone::detail {

/// A BroadcastPlan as a kernel takes it.
struct DeviceBroadcast {
  static constexpr int kMaxAxes = 8;
  int rank = 0;
  int64_t extent[kMaxAxes];
  int64_t stride[2][kMaxAxes];

  /// The element of an operand that belongs to element i of the result.
  __device__ int64_t of_operand(int operand, int64_t i) const {
    int64_t element = 0;
#pragma unroll 1  // divisions are long: unrolled, they made the largest file of the build
    for (int k = rank - 1; k >= 0; --k) {
      const int64_t index = k == 0 ? i : device::split(i, extent[k]);
      element += index * stride[operand][k];
    }
    return element;
  }
};

DeviceBroadcast device_broadcast(const BroadcastPlan& plan);

template <class F, class T>
struct BroadcastElements {
  DeviceBroadcast plan;
  T* y;
  const T* a;
  const T* b;

  template <int N>
  __device__ void operator()(int64_t i) const {
    static_assert(N == 1);
    y[i] = narrow<T>(F()(widen(a[plan.of_operand(0, i)]), widen(b[plan.of_operand(1, i)])));
  }
};

template <class F>
void broadcast_map_cuda(const BroadcastPlan& plan,
                        const Tensor& a,
                        const Tensor& b,
                        const Tensor& y) {
  dispatch_gpu(a.dtype(), "broadcast", [&]<class T>() {
    if (!plan.repeats(0) && !plan.repeats(1)) {
      launch_map<false>(y.numel(), F(), y.data<T>(), a.data<T>(), b.data<T>());
      return;
    }
    const BroadcastElements<F, T> run{
        device_broadcast(plan), y.data<T>(), a.data<T>(), b.data<T>()};
    launch_elements<1>(y.numel(), run, {});
  });
}

}  // namespace halftone::detail
