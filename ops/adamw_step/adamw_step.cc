#include "ops/adamw_step/adamw_step.h"

#include "core/check.h"

namespace halftone {
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
  update_weights("adamw_step",
                 buffers,
                 {m.data<float>(), v.data<float>()},
                 schedule,
                 detail::AdamWRule{options},
                 state);
}

}  // namespace halftone
