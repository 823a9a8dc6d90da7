#include "ops/squared_relu/squared_relu.h"

#include "ops/op.h"

namespace halftone {
namespace {

void squared_relu_cpu(const Tensor& x, const Tensor& y) {
  dispatch_floating(x.dtype(), "squared_relu", [&]<class T>() {
    for_elements(x.numel(), [in = x.data<T>(), out = y.data<T>()](int64_t i) {
      out[i] = narrow<T>(squared_relu(widen(in[i])));
    });
  });
}

void squared_relu_backward_cpu(const Tensor& x, const Tensor& dy, const GradSink& dx) {
  dispatch_floating(x.dtype(), "squared_relu", [&]<class T>() {
    write_gradient<T>(dx, [in = x.data<T>(), g = dy.data<T>()](int64_t i) {
      return widen(g[i]) * squared_relu_grad(widen(in[i]));
    });
  });
}

}  // namespace

Tensor squared_relu(const Tensor& x) {
  check_floating("squared_relu", "x", x);
  Tensor y = empty_like(x);
  if (x.is_cpu()) {
    squared_relu_cpu(x, y);
  } else if constexpr (kHasCuda) {  // only declared in a build without CUDA; the discarded branch
                                    // still links
    detail::squared_relu_cuda(x, y);
  }
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    if (x.is_cpu()) {
      squared_relu_backward_cpu(x, dy, dx);
    } else if constexpr (kHasCuda) {
      detail::squared_relu_backward_cuda(x, dy, dx);
    }
  });
  return y;
}

}  // namespace halftone
