#include "models/image_task.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/dispatch.h"
#include "ops/accuracy/accuracy.h"

namespace halftone {

std::array<float, 256> standardise(std::span<const uint8_t> pixels) {
  int64_t sum = 0;  // integers: exact, whatever the order
  int64_t sum_of_squares = 0;
  for (const uint8_t pixel : pixels) {
    sum += pixel;
    sum_of_squares += int64_t{pixel} * pixel;
  }
  const auto n = static_cast<double>(pixels.size());
  const double mean = static_cast<double>(sum) / n;
  const double variance = static_cast<double>(sum_of_squares) / n - mean * mean;
  const double deviation = variance > 0.0 ? std::sqrt(variance) : 1.0;
  std::array<float, 256> values{};
  for (size_t pixel = 0; pixel < values.size(); ++pixel) {
    values[pixel] = static_cast<float>((static_cast<double>(pixel) - mean) / deviation);
  }
  return values;
}

namespace {

// The values that pixels stand for, rounded once.
Tensor make_values(const std::array<float, 256>& values, DType dtype, Device device) {
  const Tensor rounded = Tensor::empty({256}, dtype, {}, MemoryCategory::data);
  dispatch_floating(dtype, "image task", [&]<class T>() {
    std::transform(values.begin(), values.end(), rounded.data<T>(), [](float value) {
      return narrow<T>(value);
    });
  });
  return to_device(rounded, device);
}

}  // namespace

ImageTask::ImageTask(
    Mlp& model, const ImageDataset& data, int64_t batch, uint64_t seed, Device device)
    : model_(model),
      train_(make_part(data.train, device)),
      test_(make_part(data.test, device)),
      standardised_(make_values(standardise(data.train.pixels), model.activation_dtype(), device)),
      batch_(batch),
      batches_(seed, train_.count(), batch) {
  HALFTONE_CHECK(batch >= 1, "image task: batches of ", batch, " images, expected at least 1");
  HALFTONE_CHECK(train_.count() >= 1 && test_.count() >= 1,
                 "image task: an empty training or test set");
  const int64_t pixels = data.train.height * data.train.width;
  HALFTONE_CHECK(model.options().inputs == pixels && model.options().outputs >= data.num_classes,
                 "image task: the model has ",
                 model.options().inputs,
                 " inputs and ",
                 model.options().outputs,
                 " outputs, the data ",
                 pixels,
                 " pixels and ",
                 data.num_classes,
                 " classes");
}

ImageTask::Part ImageTask::make_part(const ImageSet& set, Device device) {
  const std::vector<int32_t> labels(set.labels.begin(), set.labels.end());
  const int64_t pixels = set.height * set.width;
  return {to_device(Tensor::from(set.pixels, {set.count, pixels}, MemoryCategory::data), device),
          to_device(Tensor::from(labels, {set.count}, MemoryCategory::data), device)};
}

int64_t ImageTask::units(const MicroBatch& at) const {
  const int64_t first = at.number % batches_per_epoch(train_.count(), batch_) * batch_;
  return std::min(batch_, train_.count() - first);
}

std::vector<int64_t> ImageTask::rows(const MicroBatch& at) {
  const std::span<const int32_t> rows = batches_.at(at.number);
  return {rows.begin(), rows.end()};
}

ImageBatch ImageTask::gather(const Part& part, std::span<const int32_t> rows) const {
  const std::vector<int32_t> host(rows.begin(), rows.end());
  const Tensor on_device =
      to_device(Tensor::from(host, {static_cast<int64_t>(host.size())}), part.pixels.device());
  return gather_images(part.pixels, part.labels, on_device, standardised_);
}

CrossEntropy ImageTask::training_loss(const MicroBatch& at, const Tensor& target_weight) {
  const ImageBatch batch = gather(train_, batches_.at(at.number));
  return cross_entropy(model_.forward(batch.x), batch.targets, {.weight = target_weight});
}

Evaluation ImageTask::evaluate() {
  const NoGrad off;
  double loss_sum = 0.0;
  double correct = 0.0;
  std::vector<int32_t> rows;
  constexpr int64_t kRows = 1000;  // enough for efficient products
  for (int64_t first = 0; first < test_.count(); first += kRows) {
    const StepScope step;
    rows.resize(static_cast<size_t>(std::min(kRows, test_.count() - first)));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first));
    const ImageBatch batch = gather(test_, rows);
    const Tensor logits = model_.forward(batch.x);
    loss_sum += cross_entropy(logits, batch.targets).sum.to_doubles()[0];
    correct += count_correct(logits, batch.targets).to_doubles()[0];
  }
  const auto count = static_cast<double>(test_.count());
  return {loss_sum / count, correct / count};
}

}  // namespace halftone
