// Where an operation's randomness comes from. Draws are Philox words (core/philox.h) keyed by
// (seed, purpose) and counted by (iteration, micro-batch, element). The counters live in memory on
// the operation's device, not in kernel arguments, so that a captured graph sees them change.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/philox.h"
#include "core/tensor.h"

namespace halftone {

/// The draws of one purpose as the counters stand when they are read: what a kernel is given.
struct CountedStream {
  PhiloxKey key;
  const int64_t* counters;

  HALFTONE_HD RandomStream now() const {
    return {key, static_cast<uint32_t>(counters[0]), static_cast<uint32_t>(counters[1])};
  }
};

struct RandomSource {
  uint64_t seed = 0;
  Tensor counters;  // i64 [2]: iteration, micro-batch

  /// The draws of one purpose (the op's module path), on the device of the counters.
  CountedStream counted(std::string_view purpose) const {
    return {philox_key(seed, purpose), counters.data<int64_t>()};
  }
  /// The same as of now; counters on the CPU.
  RandomStream stream(std::string_view purpose) const { return counted(purpose).now(); }
};

}  // namespace halftone
