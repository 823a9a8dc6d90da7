// The optimizer of a run: AdamW or SGD with momentum over a model's flat buffers. It owns the
// moments and the schedule's table; what a step does is decided in the device's memory
// (ops/step_state) and computed by one op over all parameters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/module.h"
#include "models/schedule.h"
#include "ops/step_state/step_state.h"

namespace halftone {

struct OptimizerOptions {
  enum class Kind : uint8_t { adamw, sgd };
  Kind kind = Kind::adamw;
  double beta1 = 0.9;     // AdamW
  double beta2 = 0.999;   // AdamW
  double momentum = 0.9;  // SGD
  double weight_decay = 0.01;
  ScheduleOptions schedule;
};

class Optimizer {
 public:
  /// `parameters` must be allocated, and outlive the optimizer.
  Optimizer(const OptimizerOptions& options, ParameterSet& parameters, RandomSource random);

  /// After the last backward pass, with the summed loss and the targets of its micro-batch
  /// (add_loss): gradients checked, unscaled and normed in one pass, the decision, the update of
  /// weights and moments or nothing, the step's record. Two launches on a GPU.
  void step(StepState& state, const Tensor& loss_sum, const Tensor& targets);

  const OptimizerOptions& options() const { return options_; }
  /// The flat moments by the names that checkpoints give them: "adam/m" and "adam/v", or
  /// "sgd/momentum".
  const std::vector<std::pair<std::string, Tensor>>& moments() const { return moments_; }

 private:
  OptimizerOptions options_;
  ParameterBuffers buffers_;
  std::vector<std::pair<std::string, Tensor>> moments_;
  Tensor schedule_;
};

}  // namespace halftone
