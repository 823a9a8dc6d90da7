#include "ops/mul/mul.h"

#include "ops/broadcast/broadcast.h"

namespace halftone {

Tensor mul(const Tensor& a, const Tensor& b) {
  const BroadcastPlan plan = plan_broadcast("mul", a, b);
  Tensor y = broadcast_map<detail::Mul>("mul", plan, a, b);
  record({a, b},
         y,
         [plan, a = a.detach(), b = b.detach()](
             const Tensor& dy, const GradSink& da, const GradSink& db) {
           broadcast_gradient(plan, 0, dy, b, da);
           broadcast_gradient(plan, 1, dy, a, db);
         });
  return y;
}

}  // namespace halftone
