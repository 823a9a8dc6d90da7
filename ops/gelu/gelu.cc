#include "ops/gelu/gelu.h"

#include "ops/op.h"

namespace halftone {

Tensor gelu(const Tensor& x) {
  Tensor y = map<detail::Gelu>("gelu", x);
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient<detail::GeluSlope>(x, dy, dx);
  });
  return y;
}

Tensor gelu_exact(const Tensor& x) {
  Tensor y = map<detail::GeluExact>("gelu_exact", x);
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient<detail::GeluExactSlope>(x, dy, dx);
  });
  return y;
}

}  // namespace halftone
