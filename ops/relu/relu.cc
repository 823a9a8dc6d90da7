#include "ops/relu/relu.h"

#include "ops/gemm/activation.h"
#include "ops/op.h"

namespace halftone {

Tensor relu(const Tensor& x) {
  Tensor y = map("relu", x, [](auto v) { return relu(v); });
  // y is positive exactly where x is, and the next layer keeps it anyway.
  record({x}, y, [y = y.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient(y, dy, dx, [](auto v) { return relu_grad(v); });
  });
  return y;
}

}  // namespace halftone
