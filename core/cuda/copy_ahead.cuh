// Copies of 16 bytes from global to shared memory that go on while the thread works, for that same
// thread to read: no barrier is needed. Before sm_80 they are plain copies.
#pragma once

#include "core/cuda/mma_sm80.cuh"

namespace halftone::device {

/// Both aligned to 16 bytes.
__device__ __forceinline__ void copy_ahead(uint4* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  sm80::copy_async(static_cast<uint32_t>(__cvta_generic_to_shared(to)), from, sizeof(uint4));
#else
  *to = *static_cast<const uint4*>(from);
#endif
}

/// Until all copies of this thread have arrived.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  sm80::copy_commit();
  sm80::copy_wait<0>();
#endif
}

}  // namespace halftone::device
