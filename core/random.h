// Where an operation's randomness comes from. Draws are Philox words (core/philox.h) keyed by
// (seed, purpose) and counted by (iteration, micro-batch, element). The counters live in memory on
// the operation's device, not in kernel arguments, so that a captured graph sees them change.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/philox.h"
#include "core/tensor.h"

namespace halftone {

struct RandomSource {
  uint64_t seed = 0;
  Tensor counters;  // i64 [2]: iteration, micro-batch

  /// The draws of one purpose (the op's module path) as of now; counters on the CPU.
  RandomStream stream(std::string_view purpose) const {
    const int64_t* now = counters.data<int64_t>();
    return {
        philox_key(seed, purpose), static_cast<uint32_t>(now[0]), static_cast<uint32_t>(now[1])};
  }
};

}  // namespace halftone
