#include "core/cuda/launch.cuh"
#include "ops/step_state/transitions.h"

namespace halftone::detail {
namespace {

template <class Transition>
__global__ void transition_kernel(Transition transition, StepRules rules, StepScalars* scalars) {
  device::wait_for_inputs();
  transition(rules, *scalars);
}

}  // namespace

template <class Transition>
void transition_cuda(const StepState& state, const Transition& transition) {
  cuda::launch(transition_kernel<Transition>,
               {.blocks = 1, .threads = 1, .early = true},
               transition,
               state.rules(),
               &state.scalars());
}

template void transition_cuda<BeginStep>(const StepState&, const BeginStep&);
template void transition_cuda<BeginMicroBatch>(const StepState&, const BeginMicroBatch&);
template void transition_cuda<AddLoss>(const StepState&, const AddLoss&);

}  // namespace halftone::detail
