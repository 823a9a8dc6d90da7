#include "models/image_task.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/dispatch.h"
#include "core/integer.h"
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

constexpr int64_t kTestRows = 1000;  // at a time: enough for efficient products

// The values that pixels stand for, rounded once.
Tensor make_values(const std::array<float, 256>& values, DType dtype, Device device) {
  const Tensor rounded = Tensor::empty({256}, dtype, {}, MemoryCategory::data);
  dispatch_floating(dtype, "image task", [&]<class T>() {
    std::transform(values.begin(), values.end(), rounded.data<T>(), [](float value) {
      return narrow<T>(value);
    });
  });
  return data_on(device, rounded);
}

std::vector<int32_t> ascending(int64_t first, int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first));
  return rows;
}

Tensor data_from(const std::vector<int32_t>& values, Device device) {
  return data_on(device, Tensor::from(values, {std::ssize(values)}, MemoryCategory::data));
}

}  // namespace

ImageTask::ImageTask(Mlp& model, const ImageDataset& data, const BatchPlan& plan)
    : model_(model),
      data_(data),
      plan_(plan),
      batches_(plan.random.seed, data.train.count, plan.batch),
      standardised_(
          make_values(standardise(data.train.pixels), model.activation_dtype(), plan.device())) {
  HALFTONE_CHECK(plan.grad_accum >= 1,
                 "image task: ",
                 plan.grad_accum,
                 " micro-batches an iteration, expected at least 1");
  HALFTONE_CHECK(data.test.count >= 1, "image task: an empty test set");
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
  if ((data.train.count + data.test.count) * pixels <= plan.resident_bytes) {
    keep_on_device();
  } else {
    make_room(std::max(plan.batch * plan.grad_accum, kTestRows));
  }
}

void ImageTask::keep_on_device() {
  const Device device = plan_.device();
  const auto images = [&](const ImageSet& set) -> Images {
    const Shape shape{set.count, set.height * set.width};
    return {data_on(device, Tensor::from(set.pixels, shape, MemoryCategory::data)),
            data_from({set.labels.begin(), set.labels.end()}, device)};
  };
  train_ = images(data_.train);
  test_ = images(data_.test);
  ascending_ = data_from(ascending(0, data_.test.count), device);
  const int64_t per_epoch = batches_per_epoch(data_.train.count, plan_.batch);
  const Shape orders{ceil_div(plan_.grad_accum - 1, per_epoch) + 1, data_.train.count};
  epochs_ = {.orders = Tensor::empty(orders, DType::i32, device, MemoryCategory::data),
             .counters = plan_.random.counters,
             .grad_accum = plan_.grad_accum,
             .batch = plan_.batch};
  epoch_of_order_.assign(static_cast<size_t>(orders[0]), -1);
  rows_staging_.emplace(device, static_cast<size_t>(orders[1]) * sizeof(int32_t), 2 * orders[0]);
}

void ImageTask::make_room(int64_t count) {
  const Device device = plan_.device();
  const int64_t pixels = model_.options().inputs;
  sent_ = {Tensor::empty({count, pixels}, DType::u8, device, MemoryCategory::data),
           Tensor::empty({count}, DType::i32, device, MemoryCategory::data)};
  ascending_ = data_from(ascending(0, count), device);
  const auto rows = static_cast<size_t>(std::max(plan_.batch, kTestRows));
  const int64_t buffers = 2 * plan_.grad_accum;
  pixels_staging_.emplace(device, rows * static_cast<size_t>(pixels), buffers);
  rows_staging_.emplace(device, rows * sizeof(int32_t), buffers);
}

int64_t ImageTask::units(const MicroBatch& at) const {
  const int64_t count = data_.train.count;
  const int64_t first = at.number % batches_per_epoch(count, plan_.batch) * plan_.batch;
  return std::min(plan_.batch, count - first);
}

std::vector<int64_t> ImageTask::rows(const MicroBatch& at) {
  const std::span<const int32_t> rows = batches_.at(at.number);
  return {rows.begin(), rows.end()};
}

// Images `rows` of the set become images `to`, `to` + 1, ... of sent_.
void ImageTask::send(const ImageSet& set, std::span<const int32_t> rows, int64_t to) {
  const int64_t count = std::ssize(rows);
  const int64_t pixels = sent_.pixels.size(1);
  const Shape shape{count, pixels};
  pixels_staging_->fill(sent_.pixels.view(shape, contiguous_strides(shape), to * pixels),
                        [&](void* memory) {
                          auto* out = static_cast<uint8_t*>(memory);
                          for (const int32_t row : rows) {
                            out = std::copy_n(set.pixels.begin() + row * pixels, pixels, out);
                          }
                        });
  rows_staging_->fill(sent_.labels.view({count}, {1}, to), [&](void* memory) {
    std::transform(rows.begin(), rows.end(), static_cast<int32_t*>(memory), [&](int32_t row) {
      return set.labels[static_cast<size_t>(row)];
    });
  });
}

void ImageTask::prepare(const MicroBatch& at) {
  if (sent_.pixels.defined()) {
    send(data_.train, batches_.at(at.number), at.index * plan_.batch);
    return;
  }
  const int64_t count = data_.train.count;
  const int64_t epoch = at.number / batches_per_epoch(count, plan_.batch);
  const int64_t order = epoch % epochs_.orders.size(0);
  int64_t& held = epoch_of_order_[static_cast<size_t>(order)];
  if (held != epoch) {
    rows_staging_->fill(epochs_.orders.view({count}, {1}, order * count), [&](void* memory) {
      std::ranges::copy(epoch_order(plan_.random.seed, epoch, count),
                        static_cast<int32_t*>(memory));
    });
    held = epoch;
  }
}

CrossEntropy ImageTask::training_loss(const MicroBatch& at, const Tensor& target_weight) {
  const int64_t count = units(at);
  const ImageBatch batch =
      sent_.pixels.defined()
          ? gather_images(sent_.pixels,
                          sent_.labels,
                          ascending_.view({count}, {1}, at.index * plan_.batch),
                          standardised_)
          : gather_images(train_.pixels, train_.labels, epochs_, count, standardised_);
  return cross_entropy(model_.forward(batch.x), batch.targets, {.weight = target_weight});
}

ImageBatch ImageTask::gather_test(int64_t first, int64_t count) {
  if (sent_.pixels.defined()) {
    send(data_.test, ascending(first, count), 0);
    return gather_images(
        sent_.pixels, sent_.labels, ascending_.view({count}, {1}, 0), standardised_);
  }
  return gather_images(
      test_.pixels, test_.labels, ascending_.view({count}, {1}, first), standardised_);
}

Evaluation ImageTask::evaluate() {
  const NoGrad off;
  const int64_t count = data_.test.count;
  const Shape batches{ceil_div(count, kTestRows)};
  // What batches add stays on the device until the last one is known.
  const Device device = plan_.device();
  const Tensor losses = Tensor::empty(batches, DType::f32, device, MemoryCategory::workspace);
  const Tensor correct = Tensor::empty(batches, DType::i32, device, MemoryCategory::workspace);
  for (int64_t i = 0; i < batches[0]; ++i) {
    const StepScope step;
    const int64_t first = i * kTestRows;
    const ImageBatch batch = gather_test(first, std::min(kTestRows, count - first));
    const Tensor logits = model_.forward(batch.x);
    copy(cross_entropy(logits, batch.targets).sum, losses.view(Shape(), {}, i));
    copy(count_correct(logits, batch.targets), correct.view(Shape(), {}, i));
  }
  const auto mean = [&](const Tensor& sums) {
    const std::vector<double> values = sums.to_doubles();
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count);
  };
  return {mean(losses), mean(correct)};
}

}  // namespace halftone
