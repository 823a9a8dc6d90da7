// Which GPU a program may use, and why not another one: facts as the CUDA runtime states them, and
// what they mean, apart, so that every message can be tested without a GPU. No CUDA header needed.
#pragma once

#include <string>

namespace halftone::cuda {

/// What there is to know of GPU `index` before using it. Versions count as CUDA does: 12040
/// is 12.4.
struct GpuFacts {
  int index = 0;
  int count = 0;    // GPUs that the driver shows
  int driver = 0;   // newest CUDA that the driver serves; 0: there is no driver
  int runtime = 0;  // CUDA of this build
  bool driver_is_too_old = false;
  std::string name{};          // "NVIDIA H200"; this and what follows if there is such a GPU
  int compute_capability = 0;  // 10 * major + minor
  int multiprocessors = 0;
  bool has_code = false;  // this build has code that the GPU runs
  std::string error{};    // the runtime's words, where anything else went wrong
};

/// The least compute capability that any kernel is written for: 7.5.
inline constexpr int kLeastComputeCapability = 75;

/// Asks the runtime, where this build has one; never throws. A usable GPU becomes the current one
/// of this thread.
GpuFacts inspect_gpu(int index);

/// Why the GPU cannot be used, and what would help; empty if it can.
std::string why_unusable(const GpuFacts& facts);

/// "NVIDIA H200, compute capability 9.0"
std::string describe(const GpuFacts& facts);

}  // namespace halftone::cuda
