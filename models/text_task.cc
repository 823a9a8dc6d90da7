#include "models/text_task.h"

#include <algorithm>

#include "core/autograd.h"
#include "core/check.h"
#include "data/batching.h"

namespace halftone {
namespace {

Tensor resident(const std::vector<int32_t>& tokens, Device device) {
  return data_on(device, Tensor::from(tokens, {std::ssize(tokens)}, MemoryCategory::data));
}

}  // namespace

TextTask::TextTask(Gpt& model, const TokenDataset& data, const BatchPlan& plan)
    : model_(model), data_(data), plan_(plan) {
  HALFTONE_CHECK(plan.batch >= 1 && plan.grad_accum >= 1,
                 "text task: ",
                 plan.grad_accum,
                 " batches of ",
                 plan.batch,
                 " rows, expected at least 1");
  HALFTONE_CHECK(model.options().vocab == data.vocabulary.size(),
                 "text task: the model has a vocabulary of ",
                 model.options().vocab,
                 ", the data one of ",
                 data.vocabulary.size());
  check_windows(std::ssize(data.train), context(), data.source + ", training part");
  check_windows(std::ssize(data.val), context(), data.source + ", validation part");
  const Device device = plan.device();
  const auto bytes = static_cast<int64_t>((data.train.size() + data.val.size()) * sizeof(int32_t));
  if (bytes <= plan.resident_bytes) {
    train_ = resident(data.train, device);
    val_ = resident(data.val, device);
    return;
  }
  const Shape windows{plan.grad_accum, plan.batch * (context() + 1)};
  sent_ = Tensor::empty(windows, DType::i32, device, MemoryCategory::data);
  staging_.emplace(device, static_cast<size_t>(windows[1]) * sizeof(int32_t), 2 * plan.grad_accum);
}

std::vector<int64_t> TextTask::rows(const MicroBatch& at) {
  return window_offsets(
      plan_.random.seed, at.iteration, at.index, plan_.batch, std::ssize(data_.train), context());
}

void TextTask::prepare(const MicroBatch& at) {
  if (!staging_) {
    return;
  }
  const int64_t size = sent_.size(1);
  staging_->fill(sent_.view({size}, {1}, at.index * size), [&](void* memory) {
    auto* to = static_cast<int32_t*>(memory);
    for (const int64_t first : rows(at)) {
      to = std::copy_n(data_.train.begin() + first, context() + 1, to);
    }
  });
}

CrossEntropy TextTask::loss(const TokenBatch& batch, bool training, const Tensor& target_weight) {
  return cross_entropy(model_.forward(batch.inputs, training),
                       batch.targets,
                       {.vocab = model_.options().vocab, .weight = target_weight});
}

CrossEntropy TextTask::training_loss(const MicroBatch& at, const Tensor& target_weight) {
  if (staging_) {
    const Tensor sent = sent_.view({sent_.numel()});
    const int64_t first = at.index * sent_.size(1);
    return loss(
        slice_windows(sent, first, context() + 1, plan_.batch, context()), true, target_weight);
  }
  const CountedStream draws = plan_.random.counted(kWindowDraws);
  return loss(draw_windows(train_, draws, plan_.batch, context()), true, target_weight);
}

// Windows next to each other.
TokenBatch TextTask::val_windows(int64_t first, int64_t rows, int64_t length) {
  if (!staging_) {
    return slice_windows(val_, first, length, rows, length);
  }
  const Tensor sent = sent_.view({rows * length + 1}, {1}, 0);
  staging_->fill(sent, [&](void* memory) {
    std::copy_n(data_.val.begin() + first, sent.numel(), static_cast<int32_t*>(memory));
  });
  return slice_windows(sent, 0, length, rows, length);
}

Evaluation TextTask::evaluate() {
  const NoGrad off;
  const std::vector<EvalWindow> windows = eval_windows(std::ssize(data_.val), context());
  // The losses of batches stay on the device until the last one is known.
  const Tensor sums =
      Tensor::empty({std::ssize(windows)}, DType::f32, plan_.device(), MemoryCategory::workspace);
  int64_t num_batches = 0;
  for (size_t i = 0; i < windows.size();) {
    const EvalWindow& first = windows[i];
    int64_t rows = 0;
    while (i < windows.size() && rows < plan_.batch && windows[i].length == first.length) {
      ++rows;
      ++i;
    }
    const StepScope step;
    const TokenBatch batch = val_windows(first.first, rows, first.length);
    copy(loss(batch, false, Tensor()).sum, sums.view(Shape(), {}, num_batches++));
  }
  double loss_sum = 0.0;
  for (const double sum : sums.view({num_batches}, {1}, 0).to_doubles()) {
    loss_sum += sum;
  }
  return {loss_sum / static_cast<double>(std::ssize(data_.val) - 1), {}};
}

}  // namespace halftone
