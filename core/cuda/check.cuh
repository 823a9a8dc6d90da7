// Every CUDA call is checked, and every launch is followed by a check of its launch error.
#pragma once

#include <cuda_runtime.h>

#include "core/check.h"
#include "core/cuda/memory.h"

#define HALFTONE_CUDA_CHECK(call)                                                            \
  do {                                                                                       \
    const cudaError_t halftone_status_ = (call);                                             \
    if (halftone_status_ != cudaSuccess) {                                                   \
      throw ::halftone::CudaError(::halftone::concat(#call,                                  \
                                                     " failed at ",                          \
                                                     __FILE__,                               \
                                                     ":",                                    \
                                                     __LINE__,                               \
                                                     ": ",                                   \
                                                     cudaGetErrorString(halftone_status_))); \
    }                                                                                        \
  } while (false)

/// After a kernel launch.
#define HALFTONE_CUDA_CHECK_LAUNCH() HALFTONE_CUDA_CHECK(cudaGetLastError())
