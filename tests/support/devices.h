// The device that a test compares with the CPU.
#pragma once

#include <gtest/gtest.h>

#include "core/device.h"

#ifdef HALFTONE_HAS_CUDA
#include "core/cuda/memory.h"
#endif

namespace halftone::testing {

/// Whether there is a GPU and code for it.
inline bool has_gpu() {
#ifdef HALFTONE_HAS_CUDA
  return cuda::device_count() > 0;
#else
  return false;
#endif
}

inline constexpr Device kGpu{DeviceType::cuda, 0};

}  // namespace halftone::testing

/// First in a test that needs a GPU: says "skipped", never "passed", where there is none.
#define HALFTONE_SKIP_WITHOUT_GPU()                          \
  if (!::halftone::testing::has_gpu()) {                     \
    GTEST_SKIP() << "no GPU here, or no CUDA in this build"; \
  }                                                          \
  static_assert(true)
