#include "ops/add/add.h"

#include "ops/broadcast/broadcast.cuh"

namespace halftone::detail {

template void broadcast_map_cuda<Add>(const BroadcastPlan&,
                                      const Tensor&,
                                      const Tensor&,
                                      const Tensor&);

}  // namespace halftone::detail
