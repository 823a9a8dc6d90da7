#include "ops/cast/cast.h"

#include "ops/op.cuh"

namespace halftone {
namespace {

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

void detail::convert_cuda(const Tensor& from, const Tensor& to, bool accumulate) {
  dispatch_gpu(from.dtype(), "cast", [&]<class S>() {
    dispatch_gpu(to.dtype(), "cast", [&]<class D>() {
      const auto convert =
          accumulate ? launch_map<true, Identity, D, S> : launch_map<false, Identity, D, S>;
      convert(from.numel(), Identity(), to.data<D>(), from.data<S>());
    });
  });
}

}  // namespace halftone
