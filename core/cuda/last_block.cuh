// The last block of a kernel finds the work of all others done, and finishes what would else need a
// kernel of its own.
#pragma once

#include <cstdint>

namespace halftone::device {

/// Called once by every thread of every block of a one-dimensional grid, behind the block's work:
/// true in the block that comes last, which sees what the others wrote. `arrived` is 0 before the
/// kernel and again behind it.
__device__ inline bool is_last_block(uint32_t* arrived) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // for the whole block: the barrier orders its writes before this
    is_last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    if (is_last) {
      *arrived = 0;
    }
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

}  // namespace halftone::device
