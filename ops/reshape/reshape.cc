#include "ops/reshape/reshape.h"

#include "ops/cast/cast.h"
#include "ops/op.h"

namespace halftone {

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_contiguous("reshape", "x", x);
  HALFTONE_CHECK(shape.numel() == x.numel(),
                 "reshape: x of shape ",
                 x.shape(),
                 " has ",
                 x.numel(),
                 " elements, ",
                 shape,
                 " has ",
                 shape.numel());
  Tensor y = x.view(shape);
  record({x}, y, [](const Tensor& dy, const GradSink& dx) { convert_gradient(dy, dx); });
  return y;
}

}  // namespace halftone
