// Loss scaling matters: gradients too small for FP16 vanish without it, and training goes on as in
// FP32 with it. The loss is multiplied by 2^-16 and the gradient, once unscaled, divided by it
// again in FP32, so every recipe is after the same update.
#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"

namespace halftone {
namespace {

using testing::TinyOptions;
using testing::TinyRun;

const ImageDataset& digits() {
  static const ImageDataset data = synthetic_digits(3000, 1000);
  return data;
}

struct Outcome {
  double accuracy;
  double zero_share;  // of the last step's gradient values
};

Outcome train(const char* recipe) {
  TinyRun run({.recipe = recipe,
               .hidden = {64},
               .steps = 400,
               .batch = 512,
               .lr = 0.1,
               .optimizer = OptimizerOptions::Kind::sgd,
               .loss_factor = 0x1p-16f},
              digits());
  run.train();
  int64_t zeros = 0;
  for (const Parameter& p : run.model.parameters().all()) {
    for (const double g : p.gradient.to_doubles()) {
      zeros += g == 0.0 ? 1 : 0;
    }
  }
  return {*run.told.end.last->accuracy,
          static_cast<double>(zeros) / static_cast<double>(run.model.parameters().num_elements())};
}

TEST(LossScaling, Fp16WithoutItLosesTheGradient) {
  const Outcome outcome = train("fp16,loss_scale=none");
  EXPECT_GE(outcome.zero_share, 0.5);
  EXPECT_LT(outcome.accuracy, 0.2);
}

TEST(LossScaling, DynamicScalingKeepsUpWithFp32) {
  const Outcome fp32 = train("fp32");
  const Outcome fp16 = train("fp16");
  EXPECT_GT(fp32.accuracy, 0.9);
  EXPECT_NEAR(fp16.accuracy, fp32.accuracy, 0.005);
}

}  // namespace
}  // namespace halftone
