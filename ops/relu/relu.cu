#include "ops/relu/relu.h"

#include "ops/op.cuh"

namespace halftone::detail {

template void map_cuda<Relu>(const Tensor&, const Tensor&);
template void map_gradient_cuda<ReluSlope>(const Tensor&, const Tensor&, const GradSink&);

}  // namespace halftone::detail
