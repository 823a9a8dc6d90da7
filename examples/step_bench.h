// Training steps to be timed: a model on generated data with the real trainer and optimizer, one
// step at a time; and beside it the products that such a step makes, alone, in FP32. Used by
// cpu_bench.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "models/gpt.h"
#include "models/mlp.h"
#include "models/trainer.h"
#include "ops/gemm/gemm.h"

namespace halftone {

/// What is trained.
struct StepCase {
  std::string name;
  int64_t batch = 0;
  std::optional<MlpOptions> mlp{};
  std::optional<GptOptions> gpt{};
};

/// The MLP 784-1024-1024-10 at batch 128; the decoders 4x128 (T=64, B=12) and 6x384 (T=256, B=4),
/// of 65 tokens.
std::vector<StepCase> step_cases();

/// A model, its data and everything that a step touches: forward, backward, finite check, clip to
/// norm 1, AdamW, weights quantised anew.
class BenchStep {
 public:
  BenchStep(const StepCase& what, std::string_view recipe);

  /// One step of the trainer. Throws std::runtime_error where it was skipped, and so cheaper than
  /// the others, or interrupted.
  void run();

 private:
  ImageDataset images_;
  TokenDataset tokens_;
  StepState state_;
  std::optional<Mlp> mlp_;
  std::optional<Gpt> gpt_;
  std::unique_ptr<Task> task_;
  std::optional<Optimizer> optimizer_;
};

/// The products of one step in FP32, without epilogues: forward, input gradients (of all but a
/// model's first layer) and weight gradients of every linear layer, and those of attention. Every
/// product has operands of its own, as in the step.
class StepGemms {
 public:
  explicit StepGemms(const StepCase& what);

  void run() const;
  double flop() const;

 private:
  // One layer on `rows` rows of input.
  void add_linear(int64_t rows, int64_t in, int64_t out, bool needs_input_gradient);
  void add_attention(int64_t batch, int64_t length, int64_t heads, int64_t head_size);
  // `problem` with memory of its own: elements of A, B and D.
  void add(GemmProblem problem, int64_t a_size, int64_t b_size, int64_t d_size);

  std::vector<GemmProblem> problems_;
  std::vector<Tensor> memory_;
};

}  // namespace halftone
