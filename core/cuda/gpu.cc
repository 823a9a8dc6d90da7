#include "core/cuda/gpu.h"

#include "core/check.h"

namespace halftone::cuda {
namespace {

std::string version(int cuda) { return concat(cuda / 1000, ".", cuda % 1000 / 10); }
std::string capability(int value) { return concat(value / 10, ".", value % 10); }

}  // namespace

#ifndef HALFTONE_HAS_CUDA
GpuFacts inspect_gpu(int index) { return {.index = index, .error = "this build has no CUDA code"}; }
#endif

std::string describe(const GpuFacts& facts) {
  return concat(facts.name, ", compute capability ", capability(facts.compute_capability));
}

std::string why_unusable(const GpuFacts& facts) {
  if (!facts.error.empty()) {
    return facts.error;
  }
  if (facts.driver == 0) {
    return "there is no NVIDIA driver";
  }
  if (facts.driver_is_too_old) {
    return concat("the NVIDIA driver serves CUDA ",
                  version(facts.driver),
                  " and this build is for ",
                  version(facts.runtime),
                  ": update the driver, or build with an older CUDA toolkit");
  }
  if (facts.count == 0) {
    return "the NVIDIA driver shows no GPU";
  }
  if (facts.index >= facts.count) {
    return facts.count == 1
               ? std::string("the only GPU is cuda:0")
               : concat("there are ", facts.count, " GPUs, the last is cuda:", facts.count - 1);
  }
  if (facts.compute_capability < kLeastComputeCapability) {
    return concat(describe(facts), ", is older than ", capability(kLeastComputeCapability));
  }
  if (!facts.has_code) {
    return concat("this build has no code for ",
                  describe(facts),
                  ": build with -DCMAKE_CUDA_ARCHITECTURES=",
                  facts.compute_capability == 90 ? "90a" : concat(facts.compute_capability));
  }
  return "";
}

}  // namespace halftone::cuda
