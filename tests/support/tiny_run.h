// A whole training run, small: generated digits of 28x28, an MLP, the optimizer, the trainer, all
// that a program would put together, for tests of models/.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/synthetic.h"
#include "models/checkpoint.h"
#include "models/image_task.h"
#include "models/trainer.h"

namespace halftone::testing {

struct TinyOptions {
  std::string recipe = "fp32";
  std::vector<int64_t> hidden = {32};
  int64_t steps = 20;
  int64_t batch = 16;
  int64_t grad_accum = 1;
  float dropout = 0.0f;
  double lr = 1e-2;
  uint64_t seed = 1;
  int64_t eval_every = 0;
  int64_t stop_after = -1;
  int64_t print_every = 10;
  int64_t histograms = 0;
  OptimizerOptions::Kind optimizer = OptimizerOptions::Kind::adamw;
  float loss_factor = 1.0f;
  Device device{};
  bool graph = true;
  int64_t resident_bytes = int64_t{1} << 30;
};

/// 256 images to train on and 64 to test on; made once.
inline const ImageDataset& tiny_digits() {
  static const ImageDataset digits = synthetic_digits(256, 64);
  return digits;
}

/// Keeps what the trainer told.
struct Told : RunObserver {
  std::vector<StepRecord> steps;
  std::vector<double> lr;  // of each step
  std::vector<EvalEvent> evals;
  RunSummary end;
  void step(const StepEvent& event) override {
    steps.push_back(event.record);
    lr.push_back(event.lr);
  }
  void eval(const EvalEvent& event) override { evals.push_back(event); }
  void summary(const RunSummary& summary) override { end = summary; }
};

struct TinyRun {
  explicit TinyRun(const TinyOptions& o, const ImageDataset& data = tiny_digits())
      : options(o),
        recipe(parse_recipe(o.recipe)),
        state({.scaler = loss_scaler_config(recipe.loss_scale),
               .nominal_targets = static_cast<double>(o.batch * o.grad_accum),
               .loss_factor = o.loss_factor},
              o.device),
        model({.inputs = data.train.height * data.train.width,
               .hidden = o.hidden,
               .outputs = data.num_classes,
               .dropout = o.dropout},
              {recipe, state.random(o.seed), "", o.device}),
        task(model, data, {o.batch, o.grad_accum, state.random(o.seed), o.resident_bytes}),
        optimizer({.kind = o.optimizer, .schedule = {.lr = o.lr, .steps = o.steps}},
                  model.parameters(),
                  state.random(o.seed)),
        instruments(o.histograms) {}

  RunParts parts() {
    return {task, optimizer, state, history, instruments, recipe, options.grad_accum};
  }
  RunEnd train(TrainerHooks hooks = {}) {
    const TrainerOptions trainer_options{.steps = options.steps,
                                         .grad_accum = options.grad_accum,
                                         .eval_every = options.eval_every,
                                         .print_every = options.print_every,
                                         .stop_after = options.stop_after,
                                         .graph = options.graph};
    if (options.histograms > 0) {
      hooks.after_step = [this](int64_t iteration) {
        return instruments.take_if_due(iteration, task.parameters(), state);
      };
    }
    Trainer trainer(task, optimizer, state, trainer_options, {&history, &told}, std::move(hooks));
    return trainer.run();
  }
  /// The raw bytes of the weights that the optimizer trains.
  std::vector<uint8_t> weights() {
    const Tensor w = to_device(model.parameters().buffers().weights, Device{});
    const auto* bytes = static_cast<const uint8_t*>(w.raw());
    return {bytes, bytes + w.bytes()};
  }

  TinyOptions options;
  Recipe recipe;
  StepState state;
  Mlp model;
  ImageTask task;
  Optimizer optimizer;
  RunHistory history;
  Instruments instruments;
  Told told;
};

}  // namespace halftone::testing
