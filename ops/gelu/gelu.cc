#include "ops/gelu/gelu.h"

#include "core/math.h"
#include "ops/gelu/gelu_exact.h"
#include "ops/op.h"

namespace halftone {

Tensor gelu(const Tensor& x) {
  Tensor y = map("gelu", x, [](auto v) { return math::gelu(v); });
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient(x, dy, dx, [](auto v) { return math::gelu_grad(v); });
  });
  return y;
}

Tensor gelu_exact(const Tensor& x) {
  Tensor y = map("gelu_exact", x, [](auto v) { return math::gelu_exact(v); });
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient(x, dy, dx, [](auto v) { return math::gelu_exact_grad(v); });
  });
  return y;
}

}  // namespace halftone
