#include "models/text_task.h"

#include "core/autograd.h"
#include "core/check.h"
#include "data/batching.h"

namespace halftone {

TextTask::TextTask(
    Gpt& model, const TokenDataset& data, int64_t batch, uint64_t seed, Device device)
    : model_(model), data_(data), batch_(batch), seed_(seed), device_(device) {
  HALFTONE_CHECK(batch >= 1, "text task: batches of ", batch, " rows, expected at least 1");
  HALFTONE_CHECK(model.options().vocab == data.vocabulary.size(),
                 "text task: the model has a vocabulary of ",
                 model.options().vocab,
                 ", the data one of ",
                 data.vocabulary.size());
  const int64_t context = model.options().context;
  check_windows(std::ssize(data.train), context, data.source + ", training part");
  check_windows(std::ssize(data.val), context, data.source + ", validation part");
}

std::vector<int64_t> TextTask::rows(const MicroBatch& at) {
  return window_offsets(
      seed_, at.iteration, at.index, batch_, std::ssize(data_.train), model_.options().context);
}

CrossEntropy TextTask::loss(std::span<const int32_t> tokens,
                            std::span<const int64_t> firsts,
                            int64_t length,
                            bool training,
                            const Tensor& target_weight) {
  const Shape shape{std::ssize(firsts), length};
  const Tensor inputs = Tensor::empty(shape, DType::i32);
  const Tensor targets = Tensor::empty(shape, DType::i32);
  gather_windows(tokens, firsts, length, inputs.data<int32_t>(), targets.data<int32_t>());
  const Tensor logits = model_.forward(to_device(inputs, device_), training);
  return cross_entropy(logits,
                       to_device(targets, device_),
                       {.vocab = model_.options().vocab, .weight = target_weight});
}

CrossEntropy TextTask::training_loss(const MicroBatch& at, const Tensor& target_weight) {
  return loss(data_.train, rows(at), model_.options().context, true, target_weight);
}

Evaluation TextTask::evaluate() {
  const NoGrad off;
  const std::vector<EvalWindow> windows =
      eval_windows(std::ssize(data_.val), model_.options().context);
  double loss_sum = 0.0;
  double count = 0.0;
  std::vector<int64_t> firsts;
  for (size_t i = 0; i < windows.size();) {
    const int64_t length = windows[i].length;
    firsts.clear();
    while (i < windows.size() && std::ssize(firsts) < batch_ && windows[i].length == length) {
      firsts.push_back(windows[i++].first);
    }
    const StepScope step;
    const CrossEntropy part = loss(data_.val, firsts, length, false, Tensor());
    loss_sum += part.sum.to_doubles().front();
    count += part.count.to_doubles().front();
  }
  return {loss_sum / count, {}};
}

}  // namespace halftone
