#include "ops/slice/slice.h"

#include "ops/copy/strided_copy.h"

namespace halftone {

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  check_contiguous("slice", "x", x);
  HALFTONE_CHECK(
      axis >= -x.rank() && axis < x.rank(), "slice: no axis ", axis, " in x of shape ", x.shape());
  HALFTONE_CHECK(begin >= 0 && begin <= end && end <= x.size(axis),
                 "slice: range [",
                 begin,
                 ", ",
                 end,
                 ") outside axis ",
                 axis,
                 " of x of shape ",
                 x.shape());
  Shape shape = x.shape();
  shape[axis] = end - begin;
  const std::vector<int64_t> strides = contiguous_strides(x.shape());
  const int64_t offset = begin * x.stride(axis);
  Tensor y = contiguous_copy(x.view(shape, strides, offset));
  record({x}, y, [strides, offset](const Tensor& dy, const GradSink& dx) {
    if (!dx.accumulate) {
      fill_zero(dx.buffer);
    }
    strided_gradient(dy, dx, strides, offset);
  });
  return y;
}

}  // namespace halftone
