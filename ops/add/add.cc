#include "ops/add/add.h"

#include "ops/broadcast/broadcast.h"

namespace halftone {

Tensor add(const Tensor& a, const Tensor& b) {
  const BroadcastPlan plan = plan_broadcast("add", a, b);
  Tensor y = broadcast_map<detail::Add>("add", plan, a, b);
  record({a, b}, y, [plan](const Tensor& dy, const GradSink& da, const GradSink& db) {
    broadcast_gradient(plan, 0, dy, {}, da);
    broadcast_gradient(plan, 1, dy, {}, db);
  });
  return y;
}

}  // namespace halftone
