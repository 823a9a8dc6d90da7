#include "models/trainer.h"

#include <gtest/gtest.h>

#include <csignal>

#include "core/parallel.h"
#include "tests/support/bits.h"
#include "tests/support/throws.h"
#include "tests/support/tiny_run.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::same_bits;
using testing::tiny_digits;
using testing::TinyOptions;
using testing::TinyRun;

TEST(Trainer, LearnsTheTinyDigits) {
  TinyRun run({.steps = 120});
  EXPECT_EQ(run.train(), RunEnd::finished);
  EXPECT_EQ(run.told.steps.size(), 120u);
  EXPECT_EQ(run.told.evals.size(), 1u);
  EXPECT_LT(run.told.steps.back().loss, 0.3f);
  EXPECT_GT(*run.told.evals.back().evaluation.accuracy, 0.5);
}

TEST(Trainer, AccumulatesMicroBatchesToTheMeanOverTargets) {
  // One step over 64 rows, or over 4 micro-batches of 16 of the same rows: the same first loss and
  // nearly the same gradient, whose additions are grouped otherwise.
  TinyRun whole({.steps = 1, .batch = 64});
  TinyRun parts({.steps = 1, .batch = 16, .grad_accum = 4});
  whole.train();
  parts.train();
  EXPECT_NEAR(whole.told.steps[0].loss, parts.told.steps[0].loss, 1e-6f);
  EXPECT_NEAR(whole.told.steps[0].grad_norm, parts.told.steps[0].grad_norm, 1e-5f);
  EXPECT_EQ(parts.told.steps[0].targets, 64);
}

TEST(Trainer, GivesTheSameBitsWithAnyNumberOfThreads) {
  const int before = num_threads();
  for (const char* recipe : {"fp32", "fp16", "fp8-block,round=stochastic"}) {
    const TinyOptions options{.recipe = recipe, .steps = 6, .grad_accum = 2, .dropout = 0.1f};
    std::vector<uint8_t> expected;
    for (const int threads : {1, 2, 5}) {
      set_num_threads(threads);
      TinyRun run(options);
      run.train();
      expected = expected.empty() ? run.weights() : expected;
      EXPECT_TRUE(same_bits(run.weights(), expected)) << recipe << ", " << threads << " threads";
    }
  }
  set_num_threads(before);
}

TEST(Trainer, DataOrderAndWeightsDoNotDependOnTheRecipe) {
  TinyRun a({.recipe = "fp32"});
  TinyRun b({.recipe = "fp8-block"});
  EXPECT_TRUE(same_bits(a.weights(), b.weights()));
  EXPECT_EQ(a.task.rows({3, 0, 3}), b.task.rows({3, 0, 3}));
  TinyRun other({.seed = 2});
  EXPECT_FALSE(same_bits(a.weights(), other.weights()));
  EXPECT_NE(a.task.rows({3, 0, 3}), other.task.rows({3, 0, 3}));
}

TEST(Trainer, StopsWhereItIsTold) {
  int saved = 0;
  TinyRun run({.stop_after = 7});
  EXPECT_EQ(run.train({.save = [&] { return std::to_string(++saved); }}), RunEnd::stopped);
  EXPECT_EQ(run.told.steps.size(), 7u);
  EXPECT_EQ(run.state.read().iteration, 7);
  EXPECT_EQ(saved, 1);
  EXPECT_TRUE(run.told.evals.empty());

  TinyRun at_once({.stop_after = 0});
  EXPECT_EQ(at_once.train({.save = [&] { return std::to_string(++saved); }}), RunEnd::stopped);
  EXPECT_EQ(at_once.state.read().iteration, 0);
  EXPECT_EQ(saved, 2);
}

TEST(Trainer, FinishesTheStepOnCtrlC) {
  int saved = 0;
  TinyRun run({});
  TrainerHooks hooks;
  hooks.save = [&] { return std::to_string(++saved); };
  hooks.batch = [](const MicroBatch& at) {
    if (at.iteration == 4) {
      std::raise(SIGINT);
    }
  };
  EXPECT_EQ(run.train(hooks), RunEnd::interrupted);
  EXPECT_EQ(run.state.read().iteration, 5);
  EXPECT_EQ(run.told.steps.size(), 5u);
  EXPECT_EQ(saved, 1);
}

TEST(Trainer, SkipsABatchWithoutTargets) {
  struct Ignoring : ImageTask {
    using ImageTask::ImageTask;
    CrossEntropy training_loss(const MicroBatch& at, const Tensor& weight) override {
      if (at.iteration != 2) {
        return ImageTask::training_loss(at, weight);
      }
      return masked(at, weight);
    }
    CrossEntropy masked(const MicroBatch& at, const Tensor& weight) {
      const auto count = units(at);
      const Tensor x = Tensor::zeros({count, 784}, DType::f32);
      const std::vector<int32_t> ignored(static_cast<size_t>(count), kIgnoreTarget);
      return cross_entropy(model->forward(x), Tensor::from(ignored, {count}), {.weight = weight});
    }
    Mlp* model = nullptr;
  };
  TinyRun run({.steps = 4});
  Ignoring task(run.model, tiny_digits(), {.batch = 16, .random = run.state.random(1)});
  task.model = &run.model;
  Trainer trainer(task, run.optimizer, run.state, {.steps = 4}, {&run.told}, {});
  trainer.run();
  ASSERT_EQ(run.told.steps.size(), 4u);
  EXPECT_EQ(run.told.steps[2].skipped, 1);
  EXPECT_EQ(run.told.steps[2].targets, 0);
  EXPECT_EQ(run.told.steps[2].loss, 0.0f);
  EXPECT_EQ(run.told.steps[3].update, 2);
  EXPECT_EQ(run.told.end.skipped, 1);
}

TEST(Trainer, PreparesAStepsMicroBatchesBeforeItBegins) {
  struct Watched : ImageTask {
    using ImageTask::ImageTask;
    void prepare(const MicroBatch& at) override {
      calls += concat(" prepare ", at.number);
      ImageTask::prepare(at);
    }
    CrossEntropy training_loss(const MicroBatch& at, const Tensor& weight) override {
      calls += concat(" loss ", at.number);
      return ImageTask::training_loss(at, weight);
    }
    std::string calls;
  };
  TinyRun run({.steps = 2, .grad_accum = 2});
  Watched task(
      run.model, tiny_digits(), {.batch = 16, .grad_accum = 2, .random = run.state.random(1)});
  const TrainerOptions options{.steps = 2, .grad_accum = 2};
  Trainer(task, run.optimizer, run.state, options, {}, {}).run();
  EXPECT_EQ(task.calls,
            " prepare 0 prepare 1 loss 0 loss 1"
            " prepare 2 prepare 3 loss 2 loss 3");
}

// A run whose gradients are NaN on every step, because one weight is.
std::string fail_with_nan(TinyRun& run) {
  run.model.parameters().all()[2].weight.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  return message_of<TrainingFailed>([&] { run.train(); });
}

TEST(Cases, FC15_RunEndsNamingTheFirstNonFiniteTensor) {
  TinyRun run({.recipe = "fp32,loss_scale=dynamic", .steps = 1000});
  run.state.scalars().scaler.scale = 1.0f;  // already at the floor
  const std::vector<uint8_t> before = run.weights();
  const std::string message = fail_with_nan(run);
  expect_holds(message, "iteration 50", "'layers.0.weight'");
  EXPECT_EQ(run.state.read().scaler.scale, 1.0f);
  EXPECT_EQ(run.state.read().update, 0);
  // Parameters are as at the start, but for the NaN that was put there.
  std::vector<uint8_t> after = run.weights();
  const auto offset = static_cast<size_t>(run.model.parameters().all()[2].offset) * 4;
  std::copy_n(before.begin() + static_cast<int64_t>(offset),
              4,
              after.begin() + static_cast<int64_t>(offset));
  EXPECT_TRUE(same_bits(after, before));
}

TEST(Trainer, EndsAfterFiftySkipsWithAFixedScale) {
  TinyRun run({.steps = 1000});
  expect_holds(fail_with_nan(run), "iteration 50", "fixed loss scale");
}

TEST(Cases, FC33_NaNInAWeightSkipsTheStepUnderEveryRecipe) {
  std::vector<std::string> recipes = preset_names();
  recipes.insert(recipes.end(), {"e3m4-block", "mxfp8,scale=e8m0-floor", "mxfp4,keep=none"});
  for (const std::string& recipe : recipes) {
    TinyRun run({.recipe = recipe + ",loss_scale=dynamic", .steps = 1});
    // The first weight belongs to a pixel that is 0 in most images; blocks and products must show
    // the NaN all the same.
    const Parameter& p = run.model.parameters().all()[0];
    for (const Tensor& t : {p.weight, p.source}) {
      if (t.dtype() == DType::f32) {
        t.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      } else {
        static_cast<uint16_t*>(t.raw())[0] = 0x7fff;  // a NaN in bf16 and in fp16
      }
    }
    for (LinearLayer* layer : run.task.linear_layers()) {
      layer->refresh();
    }
    const std::vector<uint8_t> before = run.weights();
    run.train();
    const StepRecord& step = run.told.steps[0];
    EXPECT_EQ(step.skipped, 1) << recipe;
    EXPECT_GE(step.first_non_finite, 0) << recipe;
    EXPECT_EQ(step.next_loss_scale, 32768.0f) << recipe;
    EXPECT_TRUE(same_bits(run.weights(), before)) << recipe;
  }
}

TEST(Trainer, InterruptedInTheLastStepIsInterrupted) {
  TinyRun run({.steps = 3});
  int64_t saved = 0;
  const RunEnd end = run.train({.save =
                                    [&] {
                                      ++saved;
                                      return std::string();
                                    },
                                .batch =
                                    [](const MicroBatch& at) {
                                      if (at.iteration == 2) {
                                        std::raise(SIGINT);
                                      }
                                    }});
  EXPECT_EQ(end, RunEnd::interrupted);
  EXPECT_EQ(run.told.end.steps, 3);
  EXPECT_EQ(saved, 1);
}

TEST(Cases, FC73_ScheduleFollowsTheUpdates) {
  TinyRun run({.recipe = "fp16", .steps = 10, .lr = 1e-3});
  run.state.scalars().scaler.scale = 0x1p24f;
  run.train();
  int64_t updates = 0;
  for (size_t i = 0; i < 10; ++i) {
    const StepRecord& step = run.told.steps[i];
    // A step tells what became of it: taken, skipped, or (targets 0) nothing to learn from.
    EXPECT_EQ(step.skipped, step.first_non_finite >= 0 ? 1 : 0);
    EXPECT_EQ(step.targets, 16);
    EXPECT_EQ(step.update, updates);
    EXPECT_EQ(run.told.lr[i], learning_rate(run.optimizer.options().schedule, updates));
    updates += step.skipped == 0 ? 1 : 0;
  }
  EXPECT_EQ(run.told.steps[0].skipped, 1);
  EXPECT_EQ(run.told.steps[9].skipped, 0);
  EXPECT_EQ(run.state.read().update, updates);
  EXPECT_EQ(run.told.end.skipped, 10 - updates);
}

TEST(Cases, FC116_HostReadsOncePerInterval) {
  // Steps alone: one an interval, and the evaluation at the end.
  TinyRun run({.steps = 100, .print_every = 10});
  run.train();
  EXPECT_EQ(run.told.end.sync_calls, 10 + 1);
  // What else reads is counted: four evaluations, five histograms, the checkpoint at the end.
  TinyRun all({.steps = 100, .eval_every = 25, .print_every = 50, .histograms = 20});
  all.train({.save = [] { return std::string(); }});
  EXPECT_EQ(all.told.end.sync_calls, 4 + 4 + 5 + 1);
}

TEST(Cases, FC118_PeakBytesFollowTheFormula) {
  // The table of README: n parameters (padded) have weights of 4n in fp32; with a 16-bit copy 2n +
  // masters 4n; moments 8n.
  for (const char* name : {"fp32", "bf16", "fp8-block"}) {
    MemoryPool& pool = memory_pool({});
    const MemoryStats before = pool.stats();
    TinyRun run({.recipe = name, .hidden = {512, 512}, .steps = 2, .batch = 256});
    pool.reset_peaks();
    run.train();
    const auto peak = [&](MemoryCategory category) {
      const auto i = static_cast<size_t>(category);
      return static_cast<double>(pool.stats().by_category[i].peak_bytes -
                                 before.by_category[i].live_bytes);
    };
    const auto n = static_cast<double>(run.model.parameters().num_elements());
    const bool has_copies = run.recipe.act != DType::f32;
    EXPECT_NEAR(peak(MemoryCategory::weights), (has_copies ? 2 : 4) * n, 0.05 * n) << name;
    EXPECT_NEAR(peak(MemoryCategory::masters), (has_copies ? 4 : 0) * n, 0.05 * n) << name;
    EXPECT_NEAR(peak(MemoryCategory::moments), 8 * n, 0.05 * 8 * n) << name;
    EXPECT_NEAR(peak(MemoryCategory::gradients), 4 * n, 0.05 * 4 * n) << name;
    // FP8 copies: one byte a weight of the layers that are not kept, twice where the scales of
    // weights do not serve both products; 128x128 blocks do.
    const double quantized = std::string(name) == "fp8-block" ? n - 512 * 10 : 0.0;
    EXPECT_NEAR(peak(MemoryCategory::quantized), quantized, 0.05 * n) << name;
    // Images, each hidden layer before and after its activation, a gradient; in FP8 the quantised
    // copies of two inputs and a gradient, a byte a value.
    const double activations = 256.0 * (784 + 4 * 512 + 512) * (has_copies ? 2 : 4);
    const double copies = quantized > 0.0 ? 256.0 * (784 + 512 + 512) : 0.0;
    EXPECT_NEAR(peak(MemoryCategory::activations), activations + copies, 0.05 * activations)
        << name;
  }
}

TEST(Cases, FC119_AccumulationDoesNotRaiseThePeak) {
  int64_t peaks[2];
  for (int i = 0; i < 2; ++i) {
    TinyRun run({.steps = 2, .grad_accum = i == 0 ? 1 : 8});
    memory_pool({}).reset_peaks();
    run.train();
    peaks[i] = memory_pool({}).stats().total.peak_bytes;
  }
  EXPECT_LE(static_cast<double>(peaks[1]), 1.01 * static_cast<double>(peaks[0]));
}

}  // namespace
}  // namespace halftone
