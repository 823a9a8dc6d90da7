#include "ops/silu/silu.h"

#include "ops/op.h"

namespace halftone {

Tensor silu(const Tensor& x) {
  Tensor y = map("silu", x, [](auto v) { return math::silu(v); });
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient(x, dy, dx, [](auto v) { return math::silu_grad(v); });
  });
  return y;
}

}  // namespace halftone
