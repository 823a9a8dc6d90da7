#include "ops/gelu/gelu.h"

#include "ops/op.cuh"

namespace halftone::detail {

template void map_cuda<Gelu>(const Tensor&, const Tensor&);
template void map_gradient_cuda<GeluSlope>(const Tensor&, const Tensor&, const GradSink&);
template void map_cuda<GeluExact>(const Tensor&, const Tensor&);
template void map_gradient_cuda<GeluExactSlope>(const Tensor&, const Tensor&, const GradSink&);

}  // namespace halftone::detail
