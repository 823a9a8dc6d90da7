#include "ops/gather_windows/gather_windows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/devices.h"

namespace halftone {
namespace {

using Values = std::vector<double>;

Tensor count_from(int32_t first, int64_t n, Device device = {}) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return to_device(Tensor::from(tokens, {n}), device);
}

RandomSource random_at(int64_t iteration, int64_t micro_batch, Device device = {}) {
  return {1, to_device(Tensor::from<int64_t>({iteration, micro_batch}, {2}), device)};
}

TEST(GatherWindows, TargetsAreTheNextTokens) {
  const TokenBatch batch = slice_windows(count_from(100, 20), 0, 16, 2, 3);
  EXPECT_EQ(batch.inputs.to_doubles(), (Values{100, 101, 102, 116, 117, 118}));
  EXPECT_EQ(batch.targets.to_doubles(), (Values{101, 102, 103, 117, 118, 119}));
}

TEST(GatherWindows, DrawsStartAsTheCountersSay) {
  const Tensor tokens = count_from(0, 1000);
  const RandomSource random = random_at(7, 2);
  const CountedStream stream = random.counted("windows");
  const TokenBatch batch = draw_windows(tokens, stream, 5, 8);
  EXPECT_EQ(batch.inputs.shape(), Shape({5, 8}));
  for (int64_t b = 0; b < 5; ++b) {
    const auto start = scaled_index(RandomStream{philox_key(1, "windows"), 7, 2}.block(b), 992);
    for (int64_t t = 0; t < 8; ++t) {
      EXPECT_EQ(batch.inputs.data<int32_t>()[8 * b + t], static_cast<int32_t>(start) + t);
      EXPECT_EQ(batch.targets.data<int32_t>()[8 * b + t], static_cast<int32_t>(start) + t + 1);
    }
  }
  ++random.counters.data<int64_t>()[0];  // the same stream, a step later
  EXPECT_NE(draw_windows(tokens, stream, 5, 8).inputs.to_doubles(), batch.inputs.to_doubles());
}

TEST(GatherWindows, TheOnlyWindowIsDrawnWhereThereIsOne) {
  const RandomSource random = random_at(0, 0);
  const TokenBatch batch = draw_windows(count_from(0, 4), random.counted("windows"), 2, 3);
  EXPECT_EQ(batch.inputs.to_doubles(), (Values{0, 1, 2, 0, 1, 2}));
}

TEST(GatherWindows, TheGpuGivesTheCpusWindows) {
  HALFTONE_SKIP_WITHOUT_GPU();
  constexpr int64_t kTokens = 70000;
  for (const int64_t B : {0, 1, 13, 65}) {
    for (const int64_t T : {1, 7, 255, 256, 257, 1024}) {
      const auto run = [&](Device device, bool drawn) {
        const Tensor tokens = count_from(5, kTokens, device);
        const RandomSource random = random_at(123, 4, device);
        return drawn ? draw_windows(tokens, random.counted("windows"), B, T)
                     : slice_windows(tokens, 3, T, B, T);
      };
      for (const bool drawn : {false, true}) {
        const TokenBatch expected = run({}, drawn);
        const TokenBatch actual = run(testing::kGpu, drawn);
        EXPECT_EQ(actual.inputs.to_doubles(), expected.inputs.to_doubles()) << B << " x " << T;
        EXPECT_EQ(actual.targets.to_doubles(), expected.targets.to_doubles()) << B << " x " << T;
      }
    }
  }
}

TEST(GatherWindows, WhatDoesNotFitThrows) {
  const Tensor tokens = count_from(0, 20);
  const RandomSource random = random_at(0, 0);
  EXPECT_NO_THROW(slice_windows(tokens, 16, 3, 1, 3));
  EXPECT_THROW(slice_windows(tokens, 17, 3, 1, 3), std::invalid_argument);
  EXPECT_THROW(slice_windows(tokens, -1, 3, 1, 3), std::invalid_argument);
  EXPECT_THROW(slice_windows(tokens, 0, 9, 3, 3), std::invalid_argument);
  EXPECT_THROW(slice_windows(tokens, 0, 3, 1, 0), std::invalid_argument);
  EXPECT_THROW(draw_windows(tokens, random.counted("windows"), 1, 20), std::invalid_argument);
  EXPECT_THROW(slice_windows(Tensor::zeros({20}, DType::i64), 0, 3, 1, 3), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
