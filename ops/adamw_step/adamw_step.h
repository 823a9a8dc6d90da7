// One step of AdamW over flat buffers: moments, weights and the 16-bit copies of the weights in one
// pass. With u the unscaled, clipped gradient and lr, c1, c2 the schedule's row of this update,
//   m = beta1 m + (1 - beta1) u,   v = beta2 v + (1 - beta2) u^2
//   w = w (1 - lr * weight_decay) - lr * (m * c1) / (sqrt(v) * c2 + eps)
// Decay is decoupled and reaches the parameters marked in `decays` alone. Everything is FP32.
// Source: Loshchilov & Hutter 2019, arXiv:1711.05101; Kingma & Ba 2015, arXiv:1412.6980.
#pragma once

#include "core/math.h"
#include "ops/weight_update/weight_update.h"

namespace halftone {

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.01f;
};

/// Applies the step that `state` decided on, or leaves all as it is where it decided to skip; then
/// ends the step.
///   m, v      f32 [n], the moments      schedule  f32 [updates, 3] (weight_update.h)
/// Throws std::invalid_argument on a size or dtype mismatch.
void adamw_step(const ParameterBuffers& buffers,
                const Tensor& m,
                const Tensor& v,
                const Tensor& schedule,
                const AdamWOptions& options,
                StepState& state);

namespace detail {
struct AdamWRule {
  static constexpr size_t kMoments = 2;
  AdamWOptions options;

  HALFTONE_HD void operator()(
      const ScheduleRow& row, float u, bool decays, float& w, float (&moments)[kMoments]) const {
    float& m = moments[0];
    float& v = moments[1];
    const float keep = decays ? 1.0f - row.lr * options.weight_decay : 1.0f;
    m = options.beta1 * m + (1.0f - options.beta1) * u;
    v = options.beta2 * v + (1.0f - options.beta2) * (u * u);
    const float denominator = math::sqrt(v) * row.c2 + options.eps;
    w = w * keep - row.lr * math::divide(m * row.c1, denominator);
  }
};
}  // namespace detail

}  // namespace halftone
