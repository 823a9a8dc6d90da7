#include "ops/transpose/transpose.h"

#include "ops/copy/strided_copy.h"

namespace halftone {

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
  check_contiguous("transpose", "x", x);
  const auto swapped = [&](std::vector<int64_t> values) {
    const auto index = [&](int axis) {
      const int i = axis < 0 ? axis + x.rank() : axis;
      HALFTONE_CHECK(
          i >= 0 && i < x.rank(), "transpose: no axis ", axis, " in x of shape ", x.shape());
      return static_cast<size_t>(i);
    };
    std::swap(values[index(axis_a)], values[index(axis_b)]);
    return values;
  };
  const std::vector<int64_t> strides = swapped(contiguous_strides(x.shape()));
  Tensor y = contiguous_copy(x.view(Shape(swapped(x.shape().dims())), strides, 0));
  record({x}, y, [strides](const Tensor& dy, const GradSink& dx) {
    strided_gradient(dy, dx, strides, 0);
  });
  return y;
}

}  // namespace halftone
