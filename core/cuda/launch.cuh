// Launching kernels: on the thread's stream, with grids that cover any amount of work, checked. A
// kernel that begins with device::wait_for_inputs() may be launched early: on Hopper and later its
// blocks are set up while the kernel before it finishes (programmatic dependent launch).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/check.cuh"

namespace halftone {
namespace device {

/// First in a kernel that is launched early, by every thread and before any access to memory: waits
/// until what came before in the stream is done and visible, then lets the next kernel set up.
__device__ __forceinline__ void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace device

namespace cuda {

/// Whether wait_for_inputs() waits: not in code for older architectures, nor on them.
bool can_launch_early();

inline cudaStream_t stream() { return static_cast<cudaStream_t>(current_stream()); }

/// A grid of one dimension. No blocks: nothing is launched.
struct Grid {
  int64_t blocks = 0;
  int threads = 256;
  size_t shared_bytes = 0;
  bool early = false;  // the kernel begins with device::wait_for_inputs()
};

/// Blocks for `work` items of which a block takes `per_block` at a time; beyond a million blocks
/// they loop. Results never depend on it.
inline int64_t blocks_for(int64_t work, int64_t per_block) {
  return std::min<int64_t>((work + per_block - 1) / per_block, int64_t{1} << 20);
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Arguments... arguments) {
  if (grid.blocks == 0) {
    return;
  }
  HALFTONE_CHECK(grid.blocks <= INT32_MAX, "launch: a grid of ", grid.blocks, " blocks");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = grid.early && can_launch_early() ? 1 : 0;
  HALFTONE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

}  // namespace cuda
}  // namespace halftone
