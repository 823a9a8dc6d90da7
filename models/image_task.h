// Images with labels for an MLP. Pixels are standardised: minus the mean of all training pixels,
// over their standard deviation, rounded to the activation dtype. Batches are drawn without
// replacement, in a new order each epoch, the last batch of an epoch shorter (data/batching.h).
// They are picked on the device that trains, out of orders that the host sends when an epoch
// begins; of a data set too large for the device the host sends the images of a step ahead of it.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/staging.h"
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
  /// `model` and `data` outlive the task. Throws std::invalid_argument unless the model's inputs
  /// and outputs are the data set's pixels and classes, and the plan's numbers are at least 1.
  ImageTask(Mlp& model, const ImageDataset& data, const BatchPlan& plan);

  ParameterSet& parameters() override { return model_.parameters(); }
  std::vector<LinearLayer*> linear_layers() override { return model_.linear_layers(); }
  void prepare(const MicroBatch& at) override;
  CrossEntropy training_loss(const MicroBatch& at, const Tensor& target_weight) override;
  Evaluation evaluate() override;
  std::string_view unit() const override { return "samples"; }
  int64_t units(const MicroBatch& at) const override;
  std::vector<int64_t> rows(const MicroBatch& at) override;

 private:
  struct Images {
    Tensor pixels;  // u8 [n, pixels]
    Tensor labels;  // i32 [n]
  };
  void keep_on_device();
  void make_room(int64_t count);
  void send(const ImageSet& set, std::span<const int32_t> rows, int64_t to);
  ImageBatch gather_test(int64_t first, int64_t count);

  Mlp& model_;
  const ImageDataset& data_;
  BatchPlan plan_;
  ImageBatches batches_;
  Tensor standardised_;  // [256], by pixel, in the activation dtype
  Tensor ascending_;     // i32: 0, 1, 2, ...
  // On the device: all images, and the orders of the epochs that a step touches.
  Images train_;
  Images test_;
  EpochRows epochs_;
  std::vector<int64_t> epoch_of_order_;  // of each row of epochs_.orders; -1: none
  // Or else the images of a step, one micro-batch after the other.
  Images sent_;
  std::optional<Staging> pixels_staging_;  // with sent_
  std::optional<Staging> rows_staging_;    // of orders or of labels
};

}  // namespace halftone
