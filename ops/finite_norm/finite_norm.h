// The one look at all gradients that a step takes: are they finite, and how long is their vector?
// Both are judged on the unscaled values. Nothing is written back: the optimizer multiplies by the
// same factor again, so a gradient cannot be unscaled twice. What is decided from it comes in the
// same pass.
#pragma once

#include "ops/step_state/transitions.h"

namespace halftone {

/// Reads gradients f32 [n] once, u = gradient * scalars.unscale, and sets
///   scalars.first_non_finite  the lowest index whose u is infinite or NaN (by its bits), or -1
///   scalars.grad_norm         sqrt(sum of u^2), by chunks of 4096 and the trees of core/reduce.h
/// The sum is FP32: a norm above 1.8e19 reads as infinity, though the gradients pass as finite.
/// Throws std::invalid_argument on another dtype or rank.
void finite_norm(const Tensor& gradients, StepState& state);

/// finite_norm, and behind it whether to apply the step, the clip factor, and the scaler's next
/// state. Given the loss of the step's last micro-batch, add_loss comes first: all of it in one
/// launch on a GPU.
void decide_step(const Tensor& gradients,
                 StepState& state,
                 const Tensor& loss_sum = {},
                 const Tensor& targets = {});

namespace detail {
/// `decides`: the whole of decide_step. Without a loss its pointers are null.
void finite_norm_cuda(const Tensor& gradients, StepState& state, const AddLoss& loss, bool decides);
}  // namespace detail

}  // namespace halftone
