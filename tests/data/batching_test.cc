#include "data/batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;

TEST(Batching, AnEpochIsAPermutationOfSeedAndEpoch) {
  for (const int64_t count : {1, 2, 7, 1000}) {
    std::vector<int32_t> order = epoch_order(1, 0, count);
    EXPECT_EQ(order, epoch_order(1, 0, count));
    std::sort(order.begin(), order.end());
    std::vector<int32_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  EXPECT_NE(epoch_order(1, 0, 1000), epoch_order(1, 1, 1000));
  EXPECT_NE(epoch_order(1, 0, 1000), epoch_order(2, 0, 1000));
}

// All 24 orders of four come up about equally often: chi-square with 23 degrees of freedom is
// below 49.7 with p = 0.999.
TEST(Batching, OrdersAreEquallyLikely) {
  constexpr int kTrials = 24000;
  std::map<std::vector<int32_t>, int> seen;
  for (int epoch = 0; epoch < kTrials; ++epoch) {
    ++seen[epoch_order(7, epoch, 4)];
  }
  ASSERT_EQ(seen.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, times] : seen) {
    chi_square += (times - 1000.0) * (times - 1000.0) / 1000.0;
  }
  EXPECT_LT(chi_square, 49.7);
}

TEST(Batching, TailBatchIsShorterAndEveryImageComesOnce) {
  ImageBatches batches(3, 10, 4);
  EXPECT_EQ(batches_per_epoch(10, 4), 3);
  for (const int64_t epoch : {0, 1, 5}) {
    std::vector<int32_t> seen;
    for (int64_t piece = 0; piece < 3; ++piece) {
      const auto batch = batches.at(epoch * 3 + piece);
      EXPECT_EQ(batch.size(), piece == 2 ? 2u : 4u);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(seen, epoch_order(3, epoch, 10));
  }
  // Out of order, as after a resume: the same.
  ImageBatches resumed(3, 10, 4);
  const auto batch = resumed.at(7);
  EXPECT_TRUE(std::ranges::equal(batch, batches.at(7)));
  EXPECT_EQ(ImageBatches(3, 10, 100).at(0).size(), 10u);
  EXPECT_THROW(ImageBatches(3, 0, 4), std::invalid_argument);
  EXPECT_THROW(ImageBatches(3, 10, 0), std::invalid_argument);
}

TEST(Batching, WindowsDependOnTheirCountersAlone) {
  const auto base = window_offsets(1, 5, 0, 4, 1000, 8);
  EXPECT_EQ(base, window_offsets(1, 5, 0, 4, 1000, 8));
  const auto more = window_offsets(1, 5, 0, 6, 1000, 8);
  EXPECT_TRUE(std::equal(base.begin(), base.end(), more.begin()));
  EXPECT_NE(base, window_offsets(2, 5, 0, 4, 1000, 8));
  EXPECT_NE(base, window_offsets(1, 6, 0, 4, 1000, 8));
  EXPECT_NE(base, window_offsets(1, 5, 1, 4, 1000, 8));
  EXPECT_GT(window_offsets(1, 0, 0, 64, int64_t{1} << 40, 8).back(), int64_t{1} << 32);
}

TEST(Batching, EvaluationPredictsEveryTokenButTheFirstOnce) {
  for (const int64_t num_tokens : {0, 1, 2, 8, 9, 10, 17, 100}) {
    int64_t next = 0;
    for (const EvalWindow& window : eval_windows(num_tokens, 8)) {
      EXPECT_EQ(window.first, next);
      EXPECT_GE(window.length, 1);
      EXPECT_LE(window.length, 8);
      next += window.length;
    }
    EXPECT_EQ(next, std::max<int64_t>(num_tokens - 1, 0));
  }
}

TEST(Cases, FC95_CorpusMustHoldContextPlusOneTokens) {
  for (const int64_t num_tokens : {0, 1, 8}) {
    const std::string message = message_of<std::invalid_argument>(
        [&] { check_windows(num_tokens, 8, "validation split"); });
    expect_holds(message,
                 "validation split: need at least 9 tokens (context 8 + 1), have " +
                     std::to_string(num_tokens));
    EXPECT_THROW(window_offsets(1, 0, 0, 4, num_tokens, 8), std::invalid_argument);
  }
  const auto distinct = [](int64_t num_tokens) {
    const auto offsets = window_offsets(1, 0, 0, 200, num_tokens, 8);
    return std::set<int64_t>(offsets.begin(), offsets.end());
  };
  EXPECT_EQ(distinct(9), std::set<int64_t>{0});  // exactly one window
  EXPECT_EQ(distinct(10), (std::set<int64_t>{0, 1}));
  EXPECT_THROW(check_windows(10, 0, "training split"), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
