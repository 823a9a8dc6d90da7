// The one look at all gradients that a step takes: are they finite, and how long is their vector?
// Both are judged on the unscaled values. Nothing is written back: the optimizer multiplies by the
// same factor again, so a gradient cannot be unscaled twice. What is decided from it comes in the
// same pass.
#pragma once

#include "ops/step_state/step_state.h"

namespace halftone {

/// Reads gradients f32 [n] once, u = gradient * scalars.unscale, and sets
///   scalars.first_non_finite  the lowest index whose u is infinite or NaN (by its bits), or -1
///   scalars.grad_norm         sqrt(sum of u^2), by chunks of 4096 and the trees of core/reduce.h
/// The sum is FP32: a norm above 1.8e19 reads as infinity, though the gradients pass as finite.
/// Throws std::invalid_argument on another dtype or rank.
void finite_norm(const Tensor& gradients, StepState& state);

/// finite_norm, and behind it whether to apply the step, the clip factor, and the scaler's next
/// state.
void decide_step(const Tensor& gradients, StepState& state);

namespace detail {
void finite_norm_cuda(const Tensor& gradients, StepState& state, bool decides);
}  // namespace detail

}  // namespace halftone
