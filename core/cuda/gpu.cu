#include "core/cuda/gpu.h"

#include <cuda_runtime.h>

namespace halftone::cuda {
namespace {

__global__ void probe_kernel() {}

// Whether the call succeeded; the runtime's words are kept otherwise.
bool succeeds(cudaError_t status, GpuFacts& facts) {
  if (status != cudaSuccess) {
    (void)cudaGetLastError();  // it is reported here, not by the next launch
    facts.error = cudaGetErrorString(status);
  }
  return status == cudaSuccess;
}

void inspect_device(GpuFacts& facts) {
  cudaDeviceProp properties{};
  if (!succeeds(cudaGetDeviceProperties(&properties, facts.index), facts)) {
    return;
  }
  facts.name = properties.name;
  facts.compute_capability = 10 * properties.major + properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  if (facts.compute_capability < kLeastComputeCapability ||
      !succeeds(cudaSetDevice(facts.index), facts)) {
    return;
  }
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe_kernel);
  facts.has_code = status == cudaSuccess;
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    (void)cudaGetLastError();
  } else {
    succeeds(status, facts);
  }
}

}  // namespace

GpuFacts inspect_gpu(int index) {
  GpuFacts facts{.index = index};
  (void)cudaDriverGetVersion(&facts.driver);
  (void)cudaRuntimeGetVersion(&facts.runtime);
  const cudaError_t status = cudaGetDeviceCount(&facts.count);
  if (status == cudaSuccess) {
    if (index < facts.count) {
      inspect_device(facts);
    }
    return facts;
  }
  facts.count = 0;
  facts.driver_is_too_old = status == cudaErrorInsufficientDriver;
  if (facts.driver_is_too_old || status == cudaErrorNoDevice) {
    (void)cudaGetLastError();
  } else {
    succeeds(status, facts);
  }
  return facts;
}

}  // namespace halftone::cuda
