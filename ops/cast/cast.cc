#include "ops/cast/cast.h"

#include "ops/copy/strided_copy.h"

namespace halftone {
namespace {

void convert_cpu(const Tensor& from, const Tensor& to, bool accumulate) {
  dispatch_floating(from.dtype(), "cast", [&]<class S>() {
    dispatch_floating(to.dtype(), "cast", [&]<class D>() {
      const S* in = from.data<S>();
      D* out = to.data<D>();
      if (accumulate) {
        for_elements(from.numel(), [in, out](int64_t i) {
          put<true>(out[i], static_cast<ComputeType<D>>(widen(in[i])));
        });
      } else {
        for_elements(from.numel(), [in, out](int64_t i) { out[i] = convert_to<D>(in[i]); });
      }
    });
  });
}

}  // namespace

void convert_into(const Tensor& from, const Tensor& to, bool accumulate) {
  if (from.is_cpu()) {
    convert_cpu(from, to, accumulate);
  } else if constexpr (kHasCuda) {
    detail::convert_cuda(from, to, accumulate);
  }
}

Tensor cast(const Tensor& x, DType dtype) {
  check_floating("cast", "x", x);
  if (x.dtype() == dtype) {
    return x;
  }
  Tensor y = empty_like(x, dtype);
  convert_into(x, y);
  record({x}, y, [](const Tensor& dy, const GradSink& dx) { convert_gradient(dy, dx); });
  return y;
}

Tensor contiguous(const Tensor& x) {
  HALFTONE_CHECK(x.defined(), "contiguous: x is undefined");
  if (x.is_contiguous()) {
    return x;
  }
  Tensor y = contiguous_copy(x);
  record({x}, y, [](const Tensor& dy, const GradSink& dx) {
    strided_gradient(dy, dx, contiguous_strides(dy.shape()), 0);
  });
  return y;
}

void convert_gradient(const Tensor& dy, const GradSink& dx) {
  if (dx && !dx.take(dy)) {
    convert_into(dy, dx.buffer, dx.accumulate);
  }
}

}  // namespace halftone
