#include "ops/relu/relu.h"

#include "ops/op.h"

namespace halftone {

Tensor relu(const Tensor& x) {
  Tensor y = map<detail::Relu>("relu", x);
  // y is positive exactly where x is, and the next layer keeps it anyway.
  record({x}, y, [y = y.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient<detail::ReluSlope>(y, dy, dx);
  });
  return y;
}

}  // namespace halftone
