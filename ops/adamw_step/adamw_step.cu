#include "ops/adamw_step/adamw_step.h"

#include "ops/weight_update/weight_update.cuh"

namespace halftone::detail {

template void update_weights_cuda(const ParameterBuffers&,
                                  const std::array<float*, 2>&,
                                  const ScheduleTable&,
                                  const AdamWRule&,
                                  StepState&);

}  // namespace halftone::detail
