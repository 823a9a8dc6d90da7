#include "core/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "core/formats.h"

namespace halftone {
namespace {

static_assert(std::is_trivially_copyable_v<LossScalerState>);  // lives in device memory

// The transition is constant, and so the same wherever it runs.
static_assert(advance({}, {.scale = 4.0f, .growth = 7}, false).scale == 2.0f);

LossScalerState run(const LossScalerConfig& config,
                    LossScalerState state,
                    bool all_finite,
                    int steps) {
  for (int i = 0; i < steps; ++i) {
    state = advance(config, state, all_finite);
  }
  return state;
}

TEST(LossScaler, DefaultsAreTheDocumentedOnes) {
  const LossScalerState start{.scale = LossScalerConfig{}.init};
  EXPECT_EQ(start.scale, 65536.0f);
  const LossScalerState almost = run({}, start, true, 1999);
  EXPECT_EQ(almost.scale, 65536.0f);
  EXPECT_EQ(almost.growth, 1999);
  const LossScalerState grown = advance({}, almost, true);
  EXPECT_EQ(grown.scale, 131072.0f);
  EXPECT_EQ(grown.growth, 0);
  EXPECT_EQ(run({}, start, true, 2000 * 100).scale, 0x1p24f);
}

TEST(LossScaler, WalksEveryEdge) {
  const LossScalerConfig config{.init = 4, .floor = 1, .ceiling = 8, .growth_interval = 3};
  LossScalerState s{.scale = config.init};
  s = run(config, s, true, 2);  // two finite steps, then a skip: halves and forgets them
  s = advance(config, s, false);
  EXPECT_EQ(s.scale, 2.0f);
  EXPECT_EQ(s.growth, 0);
  EXPECT_EQ(s.skips_in_row, 1);
  EXPECT_EQ(s.stuck_in_row, 0);
  s = advance(config, s, false);  // to the floor: that skip still had a lower scale to try
  EXPECT_EQ(s.scale, 1.0f);
  EXPECT_EQ(s.skips_in_row, 2);
  EXPECT_EQ(s.stuck_in_row, 0);
  s = advance(config, s, false);  // at the floor
  EXPECT_EQ(s.scale, 1.0f);
  EXPECT_EQ(s.skips_in_row, 3);
  EXPECT_EQ(s.stuck_in_row, 1);
  s = advance(config, s, true);  // recovers
  EXPECT_EQ(s.scale, 1.0f);
  EXPECT_EQ(s.growth, 1);
  EXPECT_EQ(s.skips_in_row, 0);
  EXPECT_EQ(s.stuck_in_row, 0);
  s = run(config, s, true, 2);
  EXPECT_EQ(s.scale, 2.0f);
  EXPECT_EQ(s.growth, 0);
  s = run(config, s, true, 6);
  EXPECT_EQ(s.scale, 8.0f);  // the ceiling
  s = run(config, s, true, 3);
  EXPECT_EQ(s.scale, 8.0f);
  EXPECT_EQ(s.growth, 0);
}

TEST(LossScaler, StopsExactlyAtLimitsThatAreNoPowersOfTwo) {
  const LossScalerConfig config{.init = 5, .floor = 3, .ceiling = 7, .growth_interval = 1};
  const LossScalerState s{.scale = config.init};
  EXPECT_EQ(advance(config, s, true).scale, 7.0f);
  EXPECT_EQ(advance(config, s, false).scale, 3.0f);
  EXPECT_EQ(run(config, s, false, 2).scale, 3.0f);
}

TEST(LossScaler, FixedScaleNeverMoves) {
  const LossScalerConfig config = loss_scaler_config({LossScale::Mode::fixed, 1024.0f});
  LossScalerState s{.scale = config.init};
  EXPECT_EQ(run(config, s, true, 5000).scale, 1024.0f);
  s = run(config, s, false, 49);
  EXPECT_EQ(s.scale, 1024.0f);
  EXPECT_FALSE(has_failed(config, s));
  EXPECT_FALSE(has_failed(config, run(config, advance(config, s, true), false, 49)));
  EXPECT_TRUE(has_failed(config, advance(config, s, false)));
}

TEST(LossScaler, NoneIsAFixedScaleOfOne) {
  const LossScalerConfig config = loss_scaler_config({});
  EXPECT_FALSE(config.dynamic);
  EXPECT_EQ(config.init, 1.0f);
  EXPECT_TRUE(has_failed(config, run(config, {.scale = 1.0f}, false, 50)));
  EXPECT_TRUE(loss_scaler_config({.mode = LossScale::Mode::dynamic}).dynamic);
}

TEST(LossScaler, RefusesConfigsWithoutAReciprocal) {
  const auto refused = [](const LossScalerConfig& config) {
    EXPECT_THROW(check_loss_scaler(config), std::invalid_argument);
  };
  for (const float bad : {0.0f, -1.0f, HUGE_VALF, NAN, 0x1p127f, 0x1p-127f}) {
    refused({.init = bad});
    refused({.dynamic = false, .init = bad});
    refused({.floor = bad});
    refused({.ceiling = bad});
  }
  refused({.init = 0.5f});
  refused({.init = 0x1p25f});
  refused({.growth_interval = 0});
  refused({.patience = 0});
  EXPECT_NO_THROW(
      check_loss_scaler({.dynamic = false, .init = 0x1p-16f}));  // below the dynamic floor
}

TEST(Cases, FC13_ScaleStaysBelowItsCap) {
  const LossScalerConfig config{.growth_interval = 1};
  LossScalerState s{.scale = config.init};
  for (int i = 0; i < 200; ++i) {
    s = advance(config, s, true);
    ASSERT_LE(s.scale, 0x1p24f);
    ASSERT_TRUE(std::isnormal(1.0f / s.scale));
  }
  EXPECT_EQ(s.scale, 0x1p24f);
  const LossScalerConfig widest{.ceiling = 0x1p126f, .growth_interval = 1};
  s = run(widest, {.scale = widest.init}, true, 200);
  EXPECT_EQ(s.scale, 0x1p126f);
  EXPECT_TRUE(std::isnormal(1.0f / s.scale));
}

TEST(Cases, FC15_ScaleStopsAtFloor) {
  const LossScalerConfig config{};
  LossScalerState s{.scale = config.init};
  int steps = 0;
  while (!has_failed(config, s) && steps < 1000) {
    s = advance(config, s, false);
    ++steps;
    ASSERT_GE(s.scale, 1.0f);
  }
  EXPECT_EQ(s.scale, 1.0f);
  EXPECT_EQ(steps, 16 + 50);  // 2^16 to 1, then 50 at the floor
  EXPECT_EQ(s.skips_in_row, steps);
}

TEST(Cases, FC17_GrowthCountsExactly) {
  const LossScalerConfig config{.growth_interval = 2};
  LossScalerState s{.scale = 65536};
  const bool finite[] = {true, true, false, true, true};
  const float scale[] = {65536, 131072, 65536, 65536, 131072};
  const int growth[] = {1, 0, 0, 1, 0};
  for (int i = 0; i < 5; ++i) {
    s = advance(config, s, finite[i]);
    EXPECT_EQ(s.scale, scale[i]) << i;
    EXPECT_EQ(s.growth, growth[i]) << i;
  }
}

TEST(Cases, FC23_ScaledLossNeedsFp32) {
  const float scaled = 2.0f * LossScalerConfig{}.init;
  EXPECT_EQ(scaled, 131072.0f);
  EXPECT_TRUE(std::isinf(round_to(kFp16, scaled)));
  EXPECT_GT(scaled, kFp16.max_finite());
}

}  // namespace
}  // namespace halftone
