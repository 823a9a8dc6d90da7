#include "ops/sgd_step/sgd_step.h"

#include "core/check.h"

namespace halftone {
namespace {

void sgd_step_cpu(const ParameterBuffers& buffers,
                  float* momentum_buffer,
                  float lr,
                  const SgdOptions& options,
                  StepState& state) {
  const float momentum = options.momentum;
  const float decay = 1.0f - lr * options.weight_decay;
  update_weights_cpu(buffers,
                     state,
                     [=](int64_t first,
                         const float(&u)[kParameterAlignment],
                         float(&w)[kParameterAlignment],
                         bool decays) {
                       float* b = momentum_buffer + first;
                       const float keep = decays ? decay : 1.0f;
                       for (int64_t j = 0; j < kParameterAlignment; ++j) {
                         b[j] = momentum * b[j] + u[j];
                         w[j] = w[j] * keep - lr * b[j];
                       }
                     });
}

}  // namespace

void sgd_step(const ParameterBuffers& buffers,
              const Tensor& b,
              const Tensor& schedule,
              const SgdOptions& options,
              StepState& state) {
  check_buffers("sgd_step", buffers);
  HALFTONE_CHECK(b.dtype() == DType::f32 && b.numel() == buffers.gradients.numel(),
                 "sgd_step: the momentum buffer is ",
                 b.dtype(),
                 " ",
                 b.shape(),
                 ", expected f32 [",
                 buffers.gradients.numel(),
                 "]");
  if (buffers.gradients.is_cpu()) {
    const float lr = schedule_row("sgd_step", schedule, state.scalars().update).lr;
    sgd_step_cpu(buffers, b.data<float>(), lr, options, state);
  } else {
    throw_not_on_gpu("sgd_step");
  }
}

}  // namespace halftone
