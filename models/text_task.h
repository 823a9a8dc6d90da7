// Tokens for a decoder: every row of a batch is a window drawn from the training part, its targets
// the tokens one place further. Evaluation goes once over all of the held-out part, in windows that
// do not overlap, the last one perhaps shorter. Windows are picked on the device that trains; of a
// corpus too large for it the host sends those of a step ahead of it.
#pragma once

#include <optional>
#include <span>

#include "core/staging.h"
#include "data/dataset.h"
#include "models/gpt.h"
#include "models/task.h"
#include "ops/gather_windows/gather_windows.h"

namespace halftone {

class TextTask : public Task {
 public:
  /// `model` and `data` outlive the task. Throws std::invalid_argument unless each part of the data
  /// holds a window, the model's vocabulary is the data's, and the plan's numbers are at least 1.
  TextTask(Gpt& model, const TokenDataset& data, const BatchPlan& plan);

  ParameterSet& parameters() override { return model_.parameters(); }
  std::vector<LinearLayer*> linear_layers() override { return model_.linear_layers(); }
  void prepare(const MicroBatch& at) override;
  CrossEntropy training_loss(const MicroBatch& at, const Tensor& target_weight) override;
  Evaluation evaluate() override;
  std::string_view unit() const override { return "tokens"; }
  int64_t units(const MicroBatch&) const override { return plan_.batch * context(); }
  std::vector<int64_t> rows(const MicroBatch& at) override;

 private:
  int64_t context() const { return model_.options().context; }
  CrossEntropy loss(const TokenBatch& batch, bool training, const Tensor& target_weight);
  TokenBatch val_windows(int64_t first, int64_t rows, int64_t length);

  Gpt& model_;
  const TokenDataset& data_;
  BatchPlan plan_;
  // On the device: both parts, or else a step's windows of context + 1 tokens, one after the other.
  Tensor train_;
  Tensor val_;
  Tensor sent_;
  std::optional<Staging> staging_;  // with sent_
};

}  // namespace halftone
