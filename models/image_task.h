// Images with labels for an MLP. Pixels are standardised: minus the mean of all training pixels,
// over their standard deviation, rounded to the activation dtype. Batches are drawn without
// replacement, in a new order each epoch, the last batch of an epoch shorter (data/batching.h).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "data/batching.h"
#include "data/dataset.h"
#include "models/mlp.h"
#include "models/task.h"
#include "ops/gather_images/gather_images.h"

namespace halftone {

/// (pixel - mean) / deviation for each pixel value, mean and deviation over `pixels`, in double; a
/// deviation of 0 counts as 1.
std::array<float, 256> standardise(std::span<const uint8_t> pixels);

class ImageTask : public Task {
 public:
  /// `model` outlives the task. Throws std::invalid_argument unless the model's inputs and outputs
  /// are the data set's pixels and classes, and 1 <= batch.
  ImageTask(Mlp& model, const ImageDataset& data, int64_t batch, uint64_t seed, Device device);

  ParameterSet& parameters() override { return model_.parameters(); }
  std::vector<LinearLayer*> linear_layers() override { return model_.linear_layers(); }
  CrossEntropy training_loss(const MicroBatch& at, const Tensor& target_weight) override;
  Evaluation evaluate() override;
  std::string_view unit() const override { return "samples"; }
  int64_t units(const MicroBatch& at) const override;
  std::vector<int64_t> rows(const MicroBatch& at) override;

 private:
  struct Part {
    Tensor pixels;  // u8 [n, pixels]
    Tensor labels;  // i32 [n]
    int64_t count() const { return labels.numel(); }
  };
  static Part make_part(const ImageSet& set, Device device);
  ImageBatch gather(const Part& part, std::span<const int32_t> rows) const;

  Mlp& model_;
  Part train_;
  Part test_;
  Tensor standardised_;  // [256], by pixel, in the activation dtype
  int64_t batch_;
  ImageBatches batches_;
};

}  // namespace halftone
