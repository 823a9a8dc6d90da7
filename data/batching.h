// Which rows a step sees: pure functions of the seed and the counters, so that a resumed run,
// another recipe, another device or another number of threads sees the same ones. Draws are Philox
// (core/philox.h) under purposes of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace halftone {

/// Batches in an epoch over `count` images: ceil(count / batch). The last one of an epoch is
/// shorter where batch does not divide count: every image is seen exactly once an epoch, and a
/// batch never spans two epochs.
int64_t batches_per_epoch(int64_t count, int64_t batch);

/// A permutation of [0, count) that depends on (seed, epoch) alone: Fisher-Yates, from the last
/// place down. Each choice scales a 32-bit draw to its range, so it favours none by more than count
/// / 2^32.
std::vector<int32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t count);

/// The images of micro-batch `index`, counted from 0 over the whole run (iteration * grad_accum +
/// micro_batch): epoch index / batches_per_epoch, that epoch's order, its index %
/// batches_per_epoch-th piece. Keeps one epoch's order at a time.
class ImageBatches {
 public:
  /// Throws std::invalid_argument unless count and batch are positive.
  ImageBatches(uint64_t seed, int64_t count, int64_t batch);
  /// Valid until the next call. `batch` indices, fewer at the end of an epoch.
  std::span<const int32_t> at(int64_t index);

 private:
  uint64_t seed_;
  int64_t count_;
  int64_t batch_;
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;
};

/// The purpose of the draws of window_offsets.
inline constexpr std::string_view kWindowDraws = "data.windows";

/// The first tokens of `rows` windows of context + 1 tokens, drawn with replacement, each uniform
/// over the num_tokens - context possible ones. Row r depends on (seed, iteration, micro_batch, r)
/// alone. Throws std::invalid_argument where not a single window fits (check_windows).
std::vector<int64_t> window_offsets(uint64_t seed,
                                    int64_t iteration,
                                    int64_t micro_batch,
                                    int64_t rows,
                                    int64_t num_tokens,
                                    int64_t context);

/// Throws std::invalid_argument "WHAT: need at least 9 tokens (context 8 + 1), have N" where N <=
/// context.
void check_windows(int64_t num_tokens, int64_t context, std::string_view what);

/// A window of evaluation: `length` inputs from `first`, whose targets are the tokens one place
/// further.
struct EvalWindow {
  int64_t first;
  int64_t length;
};

/// Non-overlapping windows that together predict tokens 1 to num_tokens - 1 once each; the last may
/// be shorter than context.
std::vector<EvalWindow> eval_windows(int64_t num_tokens, int64_t context);

}  // namespace halftone
