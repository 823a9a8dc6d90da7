// Activations computed again instead of kept: memory for time. A segment of the forward pass runs
// without recording, so only its input stays; its backward pass runs the segment once more, records
// it, and walks that.
#pragma once

#include <functional>

#include "core/tensor.h"

namespace halftone {

/// segment(x). Gradients of x and of the parameters that the segment reads are, bit for bit, those
/// of calling it directly, provided that it computes the same whether or not operations are
/// recorded: dropout must be told, not guess, that the model trains.
/// Throws std::invalid_argument where operations are recorded and x needs no gradient.
Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> segment);

}  // namespace halftone
