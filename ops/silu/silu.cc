#include "ops/silu/silu.h"

#include "ops/op.h"

namespace halftone {

Tensor silu(const Tensor& x) {
  Tensor y = map<detail::Silu>("silu", x);
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient<detail::SiluSlope>(x, dy, dx);
  });
  return y;
}

}  // namespace halftone
