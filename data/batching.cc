#include "data/batching.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "core/philox.h"

namespace halftone {

int64_t batches_per_epoch(int64_t count, int64_t batch) { return (count + batch - 1) / batch; }

std::vector<int32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t count) {
  const RandomStream stream{philox_key(seed, "data.epoch_order"), uint32_t(epoch), 0};
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t last = count - 1; last > 0; --last) {
    const uint64_t chosen = uint64_t{stream.draw(uint64_t(last))} * uint64_t(last + 1) >> 32;
    std::swap(order[size_t(last)], order[chosen]);
  }
  return order;
}

ImageBatches::ImageBatches(uint64_t seed, int64_t count, int64_t batch)
    : seed_(seed), count_(count), batch_(batch) {
  HALFTONE_CHECK(count > 0 && batch > 0,
                 "image batches: ",
                 count,
                 " images in batches of ",
                 batch,
                 "; both must be positive");
}

std::span<const int32_t> ImageBatches::at(int64_t index) {
  const int64_t num_batches = batches_per_epoch(count_, batch_);
  if (const int64_t epoch = index / num_batches; epoch != epoch_) {
    order_ = epoch_order(seed_, epoch, count_);
    epoch_ = epoch;
  }
  const int64_t first = index % num_batches * batch_;
  return std::span<const int32_t>(order_).subspan(size_t(first),
                                                  size_t(std::min(batch_, count_ - first)));
}

void check_windows(int64_t num_tokens, int64_t context, std::string_view what) {
  HALFTONE_CHECK(context >= 1, what, ": context ", context, ", expected at least 1");
  HALFTONE_CHECK(num_tokens > context,
                 what,
                 ": need at least ",
                 context + 1,
                 " tokens (context ",
                 context,
                 " + 1), have ",
                 num_tokens);
}

std::vector<int64_t> window_offsets(uint64_t seed,
                                    int64_t iteration,
                                    int64_t micro_batch,
                                    int64_t rows,
                                    int64_t num_tokens,
                                    int64_t context) {
  check_windows(num_tokens, context, "windows");
  const RandomStream stream{
      philox_key(seed, kWindowDraws), uint32_t(iteration), uint32_t(micro_batch)};
  std::vector<int64_t> offsets(static_cast<size_t>(rows));
  for (size_t row = 0; row < offsets.size(); ++row) {
    // 64 bits a row, so that long corpora are drawn from evenly: a block of its own for each.
    offsets[row] = int64_t(scaled_index(stream.block(row), uint64_t(num_tokens - context)));
  }
  return offsets;
}

std::vector<EvalWindow> eval_windows(int64_t num_tokens, int64_t context) {
  HALFTONE_CHECK(context >= 1, "eval_windows: context ", context, ", expected at least 1");
  std::vector<EvalWindow> windows;
  for (int64_t first = 0; first < num_tokens - 1; first += context) {
    windows.push_back({first, std::min(context, num_tokens - 1 - first)});
  }
  return windows;
}

}  // namespace halftone
