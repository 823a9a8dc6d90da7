#include "ops/silu/silu.h"

#include "ops/op.cuh"

namespace halftone::detail {

template void map_cuda<Silu>(const Tensor&, const Tensor&);
template void map_gradient_cuda<SiluSlope>(const Tensor&, const Tensor&, const GradSink&);

}  // namespace halftone::detail
