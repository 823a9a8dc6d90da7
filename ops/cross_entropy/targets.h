// Logits and their targets: what cross_entropy and count_correct check alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor.h"

namespace halftone {

/// Checks dtypes and shapes; returns the number of columns that count (`vocab`, or all if it is 0).
/// Throws std::invalid_argument.
int64_t check_targets(std::string_view op,
                      const Tensor& logits,
                      const Tensor& targets,
                      int64_t vocab);

/// How many targets on the CPU are not ignored. Throws std::invalid_argument on one outside
/// [0, vocab).
int32_t count_valid_targets(std::string_view op, const Tensor& targets, int64_t vocab);

}  // namespace halftone
