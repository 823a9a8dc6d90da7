#include "ops/sgd_step/sgd_step.h"

#include "core/check.h"

namespace halftone {
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
  update_weights("sgd_step", buffers, {b.data<float>()}, schedule, detail::SgdRule{options}, state);
}

}  // namespace halftone
