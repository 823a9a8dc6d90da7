#include "ops/weight_update/weight_update.h"

#include "core/check.h"

namespace halftone {

void check_buffers(std::string_view op, const ParameterBuffers& buffers) {
  const int64_t n = buffers.gradients.numel();
  HALFTONE_CHECK(buffers.gradients.dtype() == DType::f32 && n % kParameterAlignment == 0,
                 op,
                 ": the gradients are ",
                 buffers.gradients.dtype(),
                 " ",
                 buffers.gradients.shape(),
                 ", expected f32 and a multiple of ",
                 kParameterAlignment,
                 " elements");
  const DType weights = buffers.weights.dtype();
  HALFTONE_CHECK(buffers.weights.numel() == n && is_floating(weights) && weights != DType::f64,
                 op,
                 ": the weights are ",
                 weights,
                 " ",
                 buffers.weights.shape(),
                 ", expected f32, bf16 or f16 and ",
                 n,
                 " elements");
  if (buffers.copies.defined()) {
    const DType copies = buffers.copies.dtype();
    HALFTONE_CHECK(buffers.copies.numel() == n && weights == DType::f32 &&
                       (copies == DType::bf16 || copies == DType::f16),
                   op,
                   ": the copies are ",
                   copies,
                   " ",
                   buffers.copies.shape(),
                   " of ",
                   weights,
                   " weights, expected bf16 or f16 copies of f32 weights, ",
                   n,
                   " elements");
  }
  HALFTONE_CHECK(
      buffers.decays.dtype() == DType::u8 && buffers.decays.numel() == n / kParameterAlignment,
      op,
      ": decays is ",
      buffers.decays.dtype(),
      " ",
      buffers.decays.shape(),
      ", expected u8 [",
      n / kParameterAlignment,
      "]");
}

ScheduleTable schedule_table(std::string_view op, const Tensor& schedule, Device device) {
  HALFTONE_CHECK(schedule.dtype() == DType::f32 && schedule.rank() == 2 && schedule.size(0) > 0 &&
                     schedule.size(1) == 3 && schedule.device() == device,
                 op,
                 ": the schedule is ",
                 schedule.dtype(),
                 " ",
                 schedule.shape(),
                 " on ",
                 to_string(schedule.device()),
                 ", expected f32 [updates, 3] on ",
                 to_string(device));
  return {schedule.data<float>(), schedule.size(0)};
}

}  // namespace halftone
