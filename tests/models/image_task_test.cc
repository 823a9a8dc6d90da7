// How images reach the device: out of a resident data set by the counters of the step, or sent by
// the host. What is seen is the same.
#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/tiny_run.h"

namespace halftone {
namespace {

using testing::kGpu;
using testing::TinyOptions;
using testing::TinyRun;

std::vector<double> train(TinyOptions options, bool resident) {
  options.resident_bytes = resident ? int64_t{1} << 30 : 0;
  TinyRun run(options);
  run.train();
  std::vector<double> seen;
  for (const StepRecord& step : run.told.steps) {
    seen.push_back(step.loss);
  }
  for (const EvalEvent& event : run.told.evals) {
    seen.insert(seen.end(), {event.evaluation.loss, *event.evaluation.accuracy});
  }
  return seen;
}

class ImageTaskOn : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda()) {
      HALFTONE_SKIP_WITHOUT_GPU();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices,
                         ImageTaskOn,
                         ::testing::Values(Device{}, kGpu),
                         [](const auto& it) { return it.param.is_cpu() ? "cpu" : "cuda"; });

// 256 images: epochs end within a step, at its end, with a shorter batch, several times a step.
TEST_P(ImageTaskOn, SentImagesAreTheResidentOnes) {
  for (const auto& [batch, grad_accum] :
       {std::pair{16, 1}, {100, 1}, {128, 5}, {60, 3}, {256, 1}, {300, 2}}) {
    const TinyOptions options{.steps = 12,
                              .batch = batch,
                              .grad_accum = grad_accum,
                              .eval_every = 6,
                              .device = GetParam()};
    EXPECT_EQ(train(options, false), train(options, true)) << batch << " x " << grad_accum;
  }
}

// In a run that a checkpoint interrupts, the first epoch seen is not the first one.
TEST_P(ImageTaskOn, AnyEpochMayComeFirst) {
  TinyRun run({.batch = 100, .device = GetParam()});
  const auto first_loss = [&](int64_t iteration, int64_t resident_bytes) {
    StepScalars scalars = run.state.read();
    scalars.iteration = iteration;
    run.state.write(scalars);
    ImageTask task(run.model,
                   testing::tiny_digits(),
                   {.batch = 100, .random = run.state.random(1), .resident_bytes = resident_bytes});
    const MicroBatch at{iteration, 0, iteration};
    task.prepare(at);
    const StepScope step;
    return task.training_loss(at, run.state.one()).sum.to_doubles()[0];
  };
  for (const int64_t iteration : {0, 2, 7, 3001}) {
    EXPECT_EQ(first_loss(iteration, int64_t{1} << 30), first_loss(iteration, 0)) << iteration;
  }
}

}  // namespace
}  // namespace halftone
