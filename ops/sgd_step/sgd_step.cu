#include "ops/sgd_step/sgd_step.h"

#include "ops/weight_update/weight_update.cuh"

namespace halftone::detail {

template void update_weights_cuda(const ParameterBuffers&,
                                  const std::array<float*, 1>&,
                                  const ScheduleTable&,
                                  const SgdRule&,
                                  StepState&);

}  // namespace halftone::detail
