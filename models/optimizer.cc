#include "models/optimizer.h"

#include "ops/adamw_step/adamw_step.h"
#include "ops/finite_norm/finite_norm.h"
#include "ops/sgd_step/sgd_step.h"

namespace halftone {

Optimizer::Optimizer(const OptimizerOptions& options, ParameterSet& parameters, RandomSource random)
    : options_(options), buffers_(parameters.buffers()) {
  buffers_.random = std::move(random);
  const Device device = buffers_.gradients.device();
  schedule_ = make_schedule(options.schedule, options.beta1, options.beta2, device);
  const bool is_adamw = options.kind == OptimizerOptions::Kind::adamw;
  const std::vector<std::string> names = is_adamw ? std::vector<std::string>{"adam/m", "adam/v"}
                                                  : std::vector<std::string>{"sgd/momentum"};
  for (const std::string& name : names) {
    moments_.emplace_back(
        name,
        Tensor::zeros(buffers_.gradients.shape(), DType::f32, device, MemoryCategory::moments));
  }
}

void Optimizer::step(StepState& state, const Tensor& loss_sum, const Tensor& targets) {
  decide_step(buffers_.gradients, state, loss_sum, targets);
  const auto weight_decay = static_cast<float>(options_.weight_decay);
  if (options_.kind == OptimizerOptions::Kind::adamw) {
    const AdamWOptions adamw{.beta1 = static_cast<float>(options_.beta1),
                             .beta2 = static_cast<float>(options_.beta2),
                             .weight_decay = weight_decay};
    adamw_step(buffers_, moments_[0].second, moments_[1].second, schedule_, adamw, state);
  } else {
    const SgdOptions sgd{.momentum = static_cast<float>(options_.momentum),
                         .weight_decay = weight_decay};
    sgd_step(buffers_, moments_[0].second, schedule_, sgd, state);
  }
}

}  // namespace halftone
