// A step's state and one flat parameter buffer for tests of the ops behind the optimizer.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/finite_norm/finite_norm.h"
#include "ops/weight_update/weight_update.h"

namespace halftone::testing {

/// Pads to whole blocks of 64 elements with zeros.
inline Tensor flat(std::vector<float> values) {
  const auto size = static_cast<int64_t>(values.size());
  const int64_t n = (size + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  values.resize(static_cast<size_t>(n));
  return Tensor::from(values, {n});
}

/// FP32 weights, or FP32 weights with copies of another dtype, all subject to decay.
inline ParameterBuffers buffers_of(const Tensor& weights,
                                   const Tensor& gradients,
                                   DType copies = DType::f32) {
  ParameterBuffers buffers;
  buffers.gradients = gradients;
  buffers.weights = weights;
  if (copies != DType::f32) {
    buffers.copies = Tensor::zeros(weights.shape(), copies);
  }
  const int64_t blocks = weights.numel() / kParameterAlignment;
  buffers.decays = Tensor::from(std::vector<uint8_t>(static_cast<size_t>(blocks), 1), {blocks});
  return buffers;
}

/// A schedule of `rows` updates with one learning rate; bias corrections of AdamW as given.
inline Tensor constant_schedule(float lr, int64_t rows = 1, float c1 = 1.0f, float c2 = 1.0f) {
  std::vector<float> table;
  for (int64_t row = 0; row < rows; ++row) {
    table.insert(table.end(), {lr, c1, c2});
  }
  return Tensor::from(table, {rows, 3});
}

/// Runs one step with one micro-batch of `targets` targets around `apply`, which calls the
/// optimizer, which ends it.
template <class Apply>
void run_step(StepState& state, const Tensor& gradients, int32_t targets, const Apply& apply) {
  begin_step(state);
  begin_micro_batch(state, 0);
  add_loss(state,
           Tensor::from<float>({static_cast<float>(targets)}, Shape()),
           Tensor::from<int32_t>({targets}, Shape()));
  decide_step(gradients, state);
  apply();
}

inline std::vector<float> floats(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.numel()};
}

}  // namespace halftone::testing
