#include "models/recompute.h"

#include "core/autograd.h"
#include "ops/cast/cast.h"

namespace halftone {

Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> segment) {
  if (!recording()) {
    return segment(x);
  }
  HALFTONE_CHECK(x.requires_grad(), "recomputed: no gradient flows into the segment");
  Tensor y;
  {
    const NoGrad off;
    y = segment(x.detach()).detach();
  }
  record({x},
         y,
         [segment = std::move(segment), kept = x.detach()](const Tensor& dy, const GradSink& dx) {
           // The segment's input comes from a node of its own rather than being a leaf: an
           // activation's gradient has the activation's dtype, and so is rounded where it would
           // have been.
           Tensor anchor = Tensor::empty({0}, DType::f32, kept.device());
           anchor.set_requires_grad();
           Tensor input = kept;
           Tensor again;
           {
             const WithGrad on;
             record({anchor}, input, [dx](const Tensor& dinput, const GradSink&) {
               convert_gradient(dinput, dx);
             });
             again = segment(input);
           }
           backward(again, dy);
         });
  return y;
}

}  // namespace halftone
