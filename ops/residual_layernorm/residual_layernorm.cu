#include "ops/residual_layernorm/residual_layernorm.h"

#include "ops/add/add.h"
#include "ops/op.cuh"

namespace halftone {

void detail::residual_add_cuda(const Tensor& residual, const Tensor& branch, const Tensor& sum) {
  dispatch_gpu(residual.dtype(), "residual_add", [&]<class T>() {
    dispatch_gpu(branch.dtype(), "residual_add", [&]<class U>() {
      launch_map<false>(sum.numel(), Add(), sum.data<T>(), residual.data<T>(), branch.data<U>());
    });
  });
}

}  // namespace halftone
