// The ops of an optimizer step together: finite_norm, decide_step, adamw_step, sgd_step.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "core/reduce.h"
#include "models/schedule.h"
#include "ops/adamw_step/adamw_step.h"
#include "ops/sgd_step/sgd_step.h"
#include "tests/support/bits.h"
#include "tests/support/close.h"
#include "tests/support/step.h"

namespace halftone {
namespace {

using testing::all_close;
using testing::buffers_of;
using testing::close;
using testing::constant_schedule;
using testing::flat;
using testing::floats;
using testing::run_step;
using testing::same_bits;
using testing::Tolerance;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

StepRules scaled_rules(float scale, float clip = 0.0f) {
  return {.scaler = {.dynamic = true, .init = scale}, .clip_norm = clip};
}

std::vector<float> varied(int64_t n, float size = 1.0f) {
  const RandomStream stream{philox_key(7, "test")};
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(size * (2.0f * uniform(stream.draw(static_cast<uint64_t>(i))) - 1.0f));
  }
  return values;
}

// The norm and the first non-finite index of gradients that are unscaled by `unscale`.
StepScalars look(const Tensor& gradients, float unscale = 1.0f) {
  StepState state(scaled_rules(1.0f), {});
  state.scalars().unscale = unscale;
  finite_norm(gradients, state);
  return state.read();
}

TEST(FiniteNorm, FollowsTheTreesAndAgreesWithDouble) {
  for (const int64_t n : {1, 63, 4095, 4096, 4097, 100003}) {
    const std::vector<float> g = varied(n);
    const Tensor gradients = Tensor::from(g, {n});
    const float norm = look(gradients, 0.25f).grad_norm;
    const float tree = flat_sum<float>(n, [&](int64_t i) {
      const float u = g[static_cast<size_t>(i)] * 0.25f;
      return u * u;
    });
    EXPECT_EQ(norm, std::sqrt(tree)) << n;
    double exact = 0.0;
    for (const float x : g) {
      exact += 0.0625 * double{x} * double{x};
    }
    EXPECT_TRUE(close(norm, std::sqrt(exact), Tolerance{0.0, 1e-6})) << n;
  }
}

TEST(FiniteNorm, FindsTheFirstNonFiniteElementAnywhere) {
  for (const int64_t at : {0, 1, 4095, 4096, 40000, 99999}) {
    std::vector<float> g = varied(100000);
    g[static_cast<size_t>(at)] = at % 2 == 0 ? kNan : -kInfinity;
    g.back() = kInfinity;
    EXPECT_EQ(look(Tensor::from(g, {100000})).first_non_finite, at);
  }
}

TEST(FiniteNorm, JudgesTheUnscaledValue) {
  EXPECT_EQ(look(flat({1.0f, 0x1p127f}), 2.0f).first_non_finite, 1);
  EXPECT_EQ(look(flat({1.0f, 0x1p127f}), 0.5f).first_non_finite, -1);
}

TEST(FiniteNorm, GivesTheSameBitsWithAnyNumberOfThreads) {
  const int before = num_threads();
  const Tensor gradients = Tensor::from(varied(300000), {300000});
  set_num_threads(1);
  const float expected = look(gradients).grad_norm;
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    EXPECT_EQ(look(gradients).grad_norm, expected) << threads;
  }
  set_num_threads(before);
}

TEST(Cases, FC19_ClippingSeesUnscaledGradients) {
  StepState state(scaled_rules(65536.0f, 1.0f), {});
  const Tensor g = flat({3.0f * 65536.0f, 4.0f * 65536.0f});
  const Tensor w = flat({0.0f, 0.0f});
  const Tensor b = flat({0.0f, 0.0f});
  const ParameterBuffers buffers = buffers_of(w, g);
  run_step(state, g, 1, [&] { sgd_step(buffers, b, constant_schedule(1.0f), {}, state); });
  EXPECT_EQ(state.read().grad_norm, 5.0f);
  EXPECT_NEAR(w.data<float>()[0], -0.6f, 1e-6f);
  EXPECT_NEAR(w.data<float>()[1], -0.8f, 1e-6f);
}

TEST(Cases, FC20_GradientsCannotBeUnscaledTwice) {
  // Unscaling is a factor in memory that readers apply, so a second look changes nothing.
  StepState state(scaled_rules(1024.0f), {});
  const Tensor g = flat({1024.0f, -2048.0f});
  const Tensor w = flat({0.0f, 0.0f});
  const Tensor b = flat({0.0f, 0.0f});
  const ParameterBuffers buffers = buffers_of(w, g);
  run_step(state, g, 1, [&] {
    finite_norm(g, state);
    sgd_step(buffers, b, constant_schedule(1.0f), {}, state);
  });
  EXPECT_EQ(w.data<float>()[0], -1.0f);
  EXPECT_EQ(w.data<float>()[1], 2.0f);
  EXPECT_EQ(g.data<float>()[0], 1024.0f);
}

TEST(Cases, FC21_OneOverflowSkipsEveryGroup) {
  // Two blocks, with decay and without; the overflow is in the second alone.
  std::vector<float> g(128, 1.0f);
  g[100] = kInfinity;
  const Tensor gradients = Tensor::from(g, {128});
  const Tensor w = Tensor::from(varied(128), {128});
  const Tensor m = Tensor::from(varied(128), {128});
  const Tensor v = Tensor::from(std::vector<float>(128, 0.5f), {128});
  ParameterBuffers buffers = buffers_of(w, gradients, DType::bf16);
  buffers.decays.data<uint8_t>()[1] = 0;
  const std::vector<float> before[] = {floats(w), floats(m), floats(v)};
  StepState state(scaled_rules(65536.0f), {});
  run_step(
      state, gradients, 1, [&] { adamw_step(buffers, m, v, constant_schedule(0.1f), {}, state); });
  EXPECT_TRUE(same_bits(floats(w), before[0]));
  EXPECT_TRUE(same_bits(floats(m), before[1]));
  EXPECT_TRUE(same_bits(floats(v), before[2]));
  const StepScalars s = state.read();
  EXPECT_EQ(s.scaler.scale, 32768.0f);
  EXPECT_EQ(s.first_non_finite, 100);
  EXPECT_EQ(s.update, 0);
  EXPECT_EQ(s.iteration, 1);
  EXPECT_EQ(s.skipped, 1);
}

TEST(Cases, FC24_OverflowIsFoundElementByElement) {
  EXPECT_EQ(look(flat({3e38f, 3e38f})).first_non_finite, -1);
  EXPECT_EQ(look(flat({kInfinity, -kInfinity})).first_non_finite, 0);
  std::vector<float> g(1000000, 1.0f);
  g[765432] = kNan;
  EXPECT_EQ(look(Tensor::from(g, {1000000})).first_non_finite, 765432);
}

TEST(Cases, FC45_StepWithoutTargetsLeavesTheScalerAlone) {
  StepState state(scaled_rules(1024.0f), {});
  const Tensor g = flat({0.0f});
  const Tensor w = flat({1.0f});
  const Tensor b = flat({1.0f});
  run_step(state, g, 0, [&] { sgd_step(buffers_of(w, g), b, constant_schedule(1.0f), {}, state); });
  const StepScalars s = state.read();
  EXPECT_EQ(w.data<float>()[0], 1.0f);
  EXPECT_EQ(b.data<float>()[0], 1.0f);
  EXPECT_EQ(s.scaler.scale, 1024.0f);
  EXPECT_EQ(s.scaler.growth, 0);
  EXPECT_EQ(s.skipped, 1);
  const StepRecord record = state.read_records(0, 1).front();
  EXPECT_EQ(record.skipped, 1);
  EXPECT_EQ(record.targets, 0);
  EXPECT_EQ(record.loss, 0.0f);
}

TEST(Cases, FC51_SumsOfManyOnesAreExact) {
  EXPECT_EQ(look(Tensor::from(std::vector<float>(70000, 1.0f), {70000})).grad_norm,
            std::sqrt(70000.0f));
}

TEST(AdamW, AgreesWithDoubleOverTenSteps) {
  constexpr int64_t kN = 256;
  const std::vector<float> start = varied(kN);
  const Tensor w = Tensor::from(start, {kN});
  const Tensor g = Tensor::zeros({kN}, DType::f32);
  const Tensor m = Tensor::zeros({kN}, DType::f32);
  const Tensor v = Tensor::zeros({kN}, DType::f32);
  ParameterBuffers buffers = buffers_of(w, g, DType::f16);
  buffers.decays.data<uint8_t>()[2] = 0;  // elements 128 to 191
  const ScheduleOptions schedule_options{.lr = 0.01, .min_lr = 0.001, .warmup = 3, .steps = 10};
  const Tensor schedule = make_schedule(schedule_options, 0.9, 0.99, {});
  StepState state(scaled_rules(1.0f), {});
  const AdamWOptions options{.beta2 = 0.99f, .weight_decay = 0.1f};

  std::vector<double> rw(start.begin(), start.end()), rm(kN, 0.0), rv(kN, 0.0);
  for (int64_t t = 1; t <= 10; ++t) {
    const std::vector<float> gradient = varied(kN, static_cast<float>(t));
    std::copy(gradient.begin(), gradient.end(), g.data<float>());
    run_step(state, g, 1, [&] { adamw_step(buffers, m, v, schedule, options, state); });
    const double lr = learning_rate(schedule_options, t - 1);
    for (size_t i = 0; i < kN; ++i) {
      const double u = gradient[i];
      rm[i] = 0.9 * rm[i] + 0.1 * u;
      rv[i] = 0.99 * rv[i] + 0.01 * u * u;
      const double mean = rm[i] / (1.0 - std::pow(0.9, static_cast<double>(t)));
      const double square = rv[i] / (1.0 - std::pow(0.99, static_cast<double>(t)));
      const bool decays = i / 64 != 2;
      rw[i] = rw[i] * (decays ? 1.0 - lr * 0.1 : 1.0) - lr * mean / (std::sqrt(square) + 1e-8);
    }
  }
  // A step moves a weight by at most about lr; ten FP32 steps lose a few ulp of 1.
  EXPECT_TRUE(all_close(floats(w), rw, Tolerance{2e-6, 1e-6}));
  for (int64_t i = 0; i < kN; ++i) {
    const auto expected = static_cast<uint16_t>(encode(kFp16, w.data<float>()[i]));
    ASSERT_EQ(buffers.copies.data<Half>()[i].bits, expected) << i;
  }
}

TEST(AdamW, KeepsGapsZeroAndBitsWithAnyNumberOfThreads) {
  const int before = num_threads();
  constexpr int64_t kN = 40000 / 64 * 64;
  std::vector<float> values = varied(kN);
  std::fill(values.begin() + 1000, values.begin() + 1024, 0.0f);  // a gap
  std::vector<float> expected;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    const Tensor w = Tensor::from(values, {kN});
    const Tensor g = Tensor::from(values, {kN});
    const Tensor m = Tensor::zeros({kN}, DType::f32);
    const Tensor v = Tensor::zeros({kN}, DType::f32);
    StepState state(scaled_rules(1.0f), {});
    run_step(state, g, 1, [&] {
      adamw_step(buffers_of(w, g), m, v, constant_schedule(0.1f), {}, state);
    });
    expected = expected.empty() ? floats(w) : expected;
    EXPECT_TRUE(same_bits(floats(w), expected)) << threads;
    EXPECT_EQ(w.data<float>()[1010], 0.0f);
    EXPECT_NE(w.data<float>()[999], values[999]);
  }
  set_num_threads(before);
}

// 100 AdamW steps of lr 6e-4 on weights of 1 with gradients of 1: bf16 alone, or beside a master.
struct Pure {
  float weight;
  int64_t lost;
};
Pure train_pure(Rounding rounding) {
  const Tensor g = flat({1.0f});
  const Tensor w = Tensor::zeros(g.shape(), DType::bf16);
  const Tensor m = Tensor::zeros(g.shape(), DType::f32);
  const Tensor v = Tensor::zeros(g.shape(), DType::f32);
  w.data<BFloat16>()[0] = to_bf16(1.0f);
  ParameterBuffers buffers = buffers_of(w, g);
  buffers.rounding = rounding;
  const Tensor schedule = make_schedule({.lr = 6e-4, .min_lr = 6e-4, .steps = 100}, 0.9, 0.999, {});
  StepState state(scaled_rules(1.0f), {});
  int64_t lost = 0;
  for (int i = 0; i < 100; ++i) {
    run_step(
        state, g, 1, [&] { adamw_step(buffers, m, v, schedule, {.weight_decay = 0.0f}, state); });
    lost += state.read_records(i, i + 1).front().lost_updates;
  }
  return {to_float(w.data<BFloat16>()[0]), lost};
}

TEST(Cases, FC66_MasterWeightsMoveWherePureOnesStand) {
  const Tensor g = flat({1.0f});
  const Tensor w = flat({1.0f});
  const Tensor m = Tensor::zeros(g.shape(), DType::f32);
  const Tensor v = Tensor::zeros(g.shape(), DType::f32);
  const ParameterBuffers buffers = buffers_of(w, g, DType::bf16);
  const Tensor schedule = make_schedule({.lr = 6e-4, .min_lr = 6e-4, .steps = 100}, 0.9, 0.999, {});
  StepState state(scaled_rules(1.0f), {});
  float last = 1.0f;
  for (int i = 0; i < 100; ++i) {
    run_step(
        state, g, 1, [&] { adamw_step(buffers, m, v, schedule, {.weight_decay = 0.0f}, state); });
    ASSERT_LT(w.data<float>()[0], last);
    last = w.data<float>()[0];
  }
  EXPECT_NEAR(last, 0.94f, 1e-4f);
  EXPECT_EQ(buffers.copies.data<BFloat16>()[0].bits, to_bf16(last).bits);

  const Pure nearest = train_pure(Rounding::nearest);
  EXPECT_EQ(nearest.weight, 1.0f);
  EXPECT_EQ(nearest.lost, 100);
  const Pure stochastic = train_pure(Rounding::stochastic);
  EXPECT_NEAR(stochastic.weight, 0.94f, 0.06f);
  EXPECT_LT(stochastic.weight, 1.0f);
  EXPECT_LT(stochastic.lost, 100);
}

TEST(Cases, FC68_ZeroGradientsMoveNothing) {
  const Tensor g = flat({0.0f});
  const Tensor w = flat({0.5f});
  const Tensor m = Tensor::zeros(g.shape(), DType::f32);
  const Tensor v = Tensor::zeros(g.shape(), DType::f32);
  StepState state(scaled_rules(1.0f), {});
  for (int i = 0; i < 3; ++i) {
    run_step(state, g, 1, [&] {
      adamw_step(buffers_of(w, g, DType::f16),
                 m,
                 v,
                 constant_schedule(0.1f),
                 {.weight_decay = 0.0f},
                 state);
    });
  }
  EXPECT_EQ(w.data<float>()[0], 0.5f);
}

TEST(Cases, FC72_SkippedStepChangesNothingButTheScaler) {
  const Tensor g = Tensor::from(varied(64), {64});
  const Tensor w = Tensor::from(varied(64), {64});
  const Tensor m = Tensor::zeros({64}, DType::f32);
  const Tensor v = Tensor::zeros({64}, DType::f32);
  const ScheduleOptions options{.lr = 0.1, .steps = 10};
  const Tensor schedule = make_schedule(options, 0.9, 0.999, {});
  StepState state(scaled_rules(65536.0f), {});
  for (int i = 1; i <= 10; ++i) {
    std::vector<float> before[] = {floats(w), floats(m), floats(v)};
    const float kept = g.data<float>()[3];
    g.data<float>()[3] = i == 5 ? kInfinity : kept;
    run_step(state, g, 1, [&] { adamw_step(buffers_of(w, g), m, v, schedule, {}, state); });
    g.data<float>()[3] = kept;
    EXPECT_EQ(static_cast<bool>(same_bits(floats(w), before[0])), i == 5) << i;
    EXPECT_EQ(static_cast<bool>(same_bits(floats(m), before[1])), i == 5) << i;
    EXPECT_EQ(static_cast<bool>(same_bits(floats(v), before[2])), i == 5) << i;
  }
  const std::vector<StepRecord> records = state.read_records(0, 10);
  EXPECT_EQ(records[4].skipped, 1);
  EXPECT_EQ(records[4].loss_scale, 65536.0f);
  EXPECT_EQ(records[5].loss_scale, 32768.0f);
  EXPECT_EQ(records[5].update, records[4].update);  // FC-73: the schedule follows updates
  EXPECT_EQ(records[9].update, 8);                  // the ninth update
  EXPECT_EQ(state.read().skipped, 1);
}

TEST(Sgd, FollowsTheFormula) {
  const Tensor g = flat({1.0f, -2.0f});
  const Tensor w = flat({1.0f, 1.0f});
  const Tensor b = flat({0.0f, 0.0f});
  StepState state(scaled_rules(1.0f), {});
  for (int i = 0; i < 2; ++i) {
    run_step(state, g, 1, [&] {
      sgd_step(buffers_of(w, g),
               b,
               constant_schedule(0.5f),
               {.momentum = 0.5f, .weight_decay = 0.25f},
               state);
    });
  }
  // First step: b = (1, -2), w = 0.875 - (0.5, -1); second: b = (1.5, -3).
  EXPECT_EQ(w.data<float>()[0], 0.375f * 0.875f - 0.75f);
  EXPECT_EQ(w.data<float>()[1], 1.875f * 0.875f + 1.5f);
}

TEST(StepState, WeighsTargetsSoThatShortBatchesAverage) {
  StepRules rules = scaled_rules(256.0f);
  rules.nominal_targets = 8.0;
  StepState state(rules, {});
  begin_step(state);
  EXPECT_EQ(state.target_weight().item(), 32.0);  // 256 / 8
  for (const int32_t targets : {4, 2}) {
    add_loss(
        state, Tensor::from<float>({3.0f}, Shape()), Tensor::from<int32_t>({targets}, Shape()));
  }
  // A gradient of weight * sum, times unscale, is sum / 6.
  EXPECT_NEAR(32.0f * state.read().unscale, 1.0f / 6.0f, 1e-8f);
  const Tensor g = flat({0.0f});
  decide_step(g, state);
  sgd_step(buffers_of(flat({1.0f}), g), flat({0.0f}), constant_schedule(1.0f), {}, state);
  EXPECT_EQ(state.read_records(0, 1).front().loss, 1.0f);
}

TEST(OptimizerStep, RefusesWrongBuffers) {
  StepState state(scaled_rules(1.0f), {});
  const Tensor g = flat({1.0f});
  const Tensor small = Tensor::zeros({32}, DType::f32);
  ParameterBuffers buffers = buffers_of(flat({1.0f}), g);
  EXPECT_THROW(sgd_step(buffers, small, constant_schedule(1.0f), {}, state), std::invalid_argument);
  buffers.weights = small;
  EXPECT_THROW(sgd_step(buffers, g, constant_schedule(1.0f), {}, state), std::invalid_argument);
  EXPECT_THROW(finite_norm(Tensor::zeros({2, 2}, DType::f32), state), std::invalid_argument);
  EXPECT_THROW(make_schedule({.steps = 0}, 0.9, 0.999, {}), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
