// Where an operation's randomness comes from. Draws are Philox words (core/philox.h) keyed by (seed, purpose) and counted by
// (iteration, micro-batch, element). The counters live in memory on the operation's device, not in kernel arguments, so that a
// captured graph sees them change.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace halftone {

struct RandomSource {
  uint64_t seed = 0;
  Tensor counters;  // i64 [2]: iteration, micro-batch
};

}  // namespace halftone
