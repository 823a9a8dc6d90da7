#include "ops/cast/cast.h"

#include "ops/copy/strided_copy.h"

namespace halftone {

Tensor cast(const Tensor& x, DType dtype) {
  check_floating("cast", "x", x);
  if (x.dtype() == dtype) {
    return x;
  }
  require_cpu("cast", x);
  Tensor y = empty_like(x, dtype);
  dispatch_floating(x.dtype(), "cast", [&]<class S>() {
    dispatch_floating(dtype, "cast", [&]<class D>() {
      for_elements(x.numel(), [in = x.data<S>(), out = y.data<D>()](int64_t i) {
        out[i] = convert_to<D>(in[i]);
      });
    });
  });
  record({x}, y, [dtype = x.dtype()](const Tensor& dy, const GradSink& dx) {
    dispatch_floating(dtype, "cast", [&]<class S>() {
      dispatch_floating(dy.dtype(), "cast", [&]<class D>() {
        const D* g = dy.data<D>();
        with_sink<S>(dx, [&]<bool accumulate>(auto* out) {
          using Out = std::remove_pointer_t<decltype(out)>;
          for_elements(dy.numel(), [g, out](int64_t i) {
            if constexpr (accumulate) {
              put<true>(out[i], static_cast<ComputeType<Out>>(widen(g[i])));
            } else {
              out[i] = convert_to<Out>(g[i]);
            }
          });
        });
      });
    });
  });
  return y;
}

Tensor contiguous(const Tensor& x) {
  HALFTONE_CHECK(x.defined(), "contiguous: x is undefined");
  if (x.is_contiguous()) {
    return x;
  }
  require_cpu("contiguous", x);
  Tensor y = contiguous_copy(x);
  record({x}, y, [](const Tensor& dy, const GradSink& dx) {
    strided_gradient(dy, dx, contiguous_strides(dy.shape()), 0);
  });
  return y;
}

}  // namespace halftone
