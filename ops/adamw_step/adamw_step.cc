#include "ops/adamw_step/adamw_step.h"

#include "core/check.h"
#include "core/math.h"

namespace halftone {
namespace {

void adamw_step_cpu(const ParameterBuffers& buffers,
                    float* moments_m,
                    float* moments_v,
                    const ScheduleRow& row,
                    const AdamWOptions& options,
                    StepState& state) {
  const float beta1 = options.beta1;
  const float beta2 = options.beta2;
  const float rest1 = 1.0f - beta1;
  const float rest2 = 1.0f - beta2;
  const float eps = options.eps;
  const float decay = 1.0f - row.lr * options.weight_decay;
  update_weights_cpu(buffers,
                     state,
                     [=](int64_t first,
                         const float(&u)[kParameterAlignment],
                         float(&w)[kParameterAlignment],
                         bool decays) {
                       float* m = moments_m + first;
                       float* v = moments_v + first;
                       const float keep = decays ? decay : 1.0f;
                       for (int64_t j = 0; j < kParameterAlignment; ++j) {
                         m[j] = beta1 * m[j] + rest1 * u[j];
                         v[j] = beta2 * v[j] + rest2 * (u[j] * u[j]);
                         const float denominator = math::sqrt(v[j]) * row.c2 + eps;
                         w[j] = w[j] * keep - row.lr * math::divide(m[j] * row.c1, denominator);
                       }
                     });
}

}  // namespace

void adamw_step(const ParameterBuffers& buffers,
                const Tensor& m,
                const Tensor& v,
                const Tensor& schedule,
                const AdamWOptions& options,
                StepState& state) {
  check_buffers("adamw_step", buffers);
  const int64_t n = buffers.gradients.numel();
  for (const Tensor& moment : {m, v}) {
    HALFTONE_CHECK(moment.dtype() == DType::f32 && moment.numel() == n,
                   "adamw_step: a moment is ",
                   moment.dtype(),
                   " ",
                   moment.shape(),
                   ", expected f32 [",
                   n,
                   "]");
  }
  if (buffers.gradients.is_cpu()) {
    const ScheduleRow row = schedule_row("adamw_step", schedule, state.scalars().update);
    adamw_step_cpu(buffers, m.data<float>(), v.data<float>(), row, options, state);
  } else {
    throw_not_on_gpu("adamw_step");
  }
}

}  // namespace halftone
