// One step of SGD with momentum over flat buffers, weights and their 16-bit copies in one pass.
// With u the unscaled, clipped gradient and lr the schedule's of this update,
//   b = momentum * b + u,   w = w (1 - lr * weight_decay) - lr * b
// The decay is decoupled, as in AdamW: momentum does not see it. Everything is FP32.
// Source: Sutskever et al. 2013 (the form without damping); Loshchilov & Hutter 2019 (decay).
#pragma once

#include "ops/weight_update/weight_update.h"

namespace halftone {

struct SgdOptions {
  float momentum = 0.9f;
  float weight_decay = 0.0f;
};

/// Applies the step that `state` decided on, or leaves all as it is where it decided to skip; then
/// ends the step.
///   b  f32 [n], the momentum buffer      schedule  f32 [updates, 3] (weight_update.h)
/// Throws std::invalid_argument on a size or dtype mismatch.
void sgd_step(const ParameterBuffers& buffers,
              const Tensor& b,
              const Tensor& schedule,
              const SgdOptions& options,
              StepState& state);

namespace detail {
struct SgdRule {
  static constexpr size_t kMoments = 1;
  SgdOptions options;

  HALFTONE_HD void operator()(
      const ScheduleRow& row, float u, bool decays, float& w, float (&moments)[kMoments]) const {
    float& b = moments[0];
    const float keep = decays ? 1.0f - row.lr * options.weight_decay : 1.0f;
    b = options.momentum * b + u;
    w = w * keep - row.lr * b;
  }
};
}  // namespace detail

}  // namespace halftone
