// Tokens for a decoder: every row of a batch is a window drawn from the training part, its targets
// the tokens one place further. Evaluation goes once over all of the held-out part, in windows that
// do not overlap, the last one perhaps shorter.
#pragma once

#include "data/dataset.h"
#include "models/gpt.h"
#include "models/task.h"

namespace halftone {

class TextTask : public Task {
 public:
  /// `model` and `data` outlive the task. Throws std::invalid_argument unless each part of the data
  /// holds a window, the model's vocabulary is the data's, and 1 <= batch.
  TextTask(Gpt& model, const TokenDataset& data, int64_t batch, uint64_t seed, Device device);

  ParameterSet& parameters() override { return model_.parameters(); }
  std::vector<LinearLayer*> linear_layers() override { return model_.linear_layers(); }
  CrossEntropy training_loss(const MicroBatch& at, const Tensor& target_weight) override;
  Evaluation evaluate() override;
  std::string_view unit() const override { return "tokens"; }
  int64_t units(const MicroBatch&) const override { return batch_ * model_.options().context; }
  std::vector<int64_t> rows(const MicroBatch& at) override;

 private:
  /// The losses of windows of `length` tokens that start at `firsts`.
  CrossEntropy loss(std::span<const int32_t> tokens,
                    std::span<const int64_t> firsts,
                    int64_t length,
                    bool training,
                    const Tensor& target_weight);

  Gpt& model_;
  const TokenDataset& data_;
  int64_t batch_;
  uint64_t seed_;
  Device device_;
};

}  // namespace halftone
