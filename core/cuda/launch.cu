#include "core/cuda/launch.cuh"

namespace halftone::cuda {
namespace {

// Compiled for the architectures that all kernels are compiled for.
__global__ void probe_kernel() {}

}  // namespace

bool can_launch_early() {
  static const bool can = [] {
    cudaFuncAttributes attributes{};
    HALFTONE_CUDA_CHECK(cudaFuncGetAttributes(&attributes, probe_kernel));
    return attributes.ptxVersion >= 90;  // __CUDA_ARCH__ / 10 of the code that runs here
  }();
  return can;
}

}  // namespace halftone::cuda
