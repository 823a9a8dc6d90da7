// A whole training run of a small GPT on generated tokens, for tests of models/.
#pragma once

#include <vector>

#include "models/text_task.h"
#include "tests/support/tiny_run.h"

namespace halftone::testing {

struct TinyGptOptions {
  std::string recipe = "fp32";
  GptOptions gpt{.vocab = 61, .context = 16, .layers = 2, .heads = 2, .width = 32};
  int64_t steps = 20;
  int64_t batch = 4;
  int64_t grad_accum = 1;
  double lr = 3e-3;
  uint64_t seed = 1;
  int64_t eval_every = 0;
  bool graph = true;
  Device device{};
};

/// Tokens that follow from the one before often enough to be learnt: 2000 to train on, 200 to
/// measure on.
inline const TokenDataset& tiny_tokens(int64_t vocab) {
  static TokenDataset data;
  if (data.vocabulary.size() != vocab) {
    uint64_t state = 1;
    int64_t token = 0;
    std::vector<int32_t> tokens(2200);
    for (int32_t& t : tokens) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      token =
          state >> 62 == 0 ? static_cast<int64_t>(state >> 33) % vocab : (token * 5 + 7) % vocab;
      t = static_cast<int32_t>(token);
    }
    data.source = "generated";
    data.train.assign(tokens.begin(), tokens.begin() + 2000);
    data.val.assign(tokens.begin() + 2000, tokens.end());
    data.vocabulary = Vocabulary::ids(vocab);
  }
  return data;
}

struct TinyGpt {
  explicit TinyGpt(const TinyGptOptions& o)
      : options(o),
        recipe(parse_recipe(o.recipe)),
        state({.scaler = loss_scaler_config(recipe.loss_scale),
               .nominal_targets = static_cast<double>(o.batch * o.gpt.context * o.grad_accum)},
              o.device),
        model(o.gpt, {recipe, state.random(o.seed), "", o.device}),
        task(model, tiny_tokens(o.gpt.vocab), {o.batch, o.grad_accum, state.random(o.seed)}),
        optimizer({.schedule = {.lr = o.lr, .steps = o.steps}},
                  model.parameters(),
                  state.random(o.seed)) {}

  RunEnd train() {
    Trainer trainer(task,
                    optimizer,
                    state,
                    {.steps = options.steps,
                     .grad_accum = options.grad_accum,
                     .eval_every = options.eval_every,
                     .graph = options.graph},
                    {&told},
                    {});
    return trainer.run();
  }
  /// The raw bytes of the weights that the optimizer trains.
  std::vector<uint8_t> weights() {
    const Tensor w = to_device(model.parameters().buffers().weights, Device{});
    const auto* bytes = static_cast<const uint8_t*>(w.raw());
    return {bytes, bytes + w.bytes()};
  }

  TinyGptOptions options;
  Recipe recipe;
  StepState state;
  Gpt model;
  TextTask task;
  Optimizer optimizer;
  Told told;
};

}  // namespace halftone::testing
