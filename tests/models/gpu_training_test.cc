// Training on a GPU is training on the CPU: with the Tensor Core's arithmetic on both sides, every
// loss, norm, scale and weight has the same bits, whether steps are replayed as a graph or launched
// op by op.
#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/same_training.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_run.h"

namespace halftone {
namespace {

using testing::bytes_of;
using testing::expect_same;
using testing::kGpu;
using testing::same_bits;
using testing::TempFolder;
using testing::TinyOptions;
using testing::TinyRun;

// Starts at a loss scale of its own where it is not 0.
void train(TinyRun& run, float loss_scale) {
  if (loss_scale > 0.0f) {
    StepScalars scalars = run.state.read();
    scalars.scaler.scale = loss_scale;
    run.state.write(scalars);
  }
  run.train();
}

void expect_same_training(TinyOptions options, float loss_scale = 0.0f) {
  SCOPED_TRACE(options.recipe);
  TinyRun on_cpu(options);
  train(on_cpu, loss_scale);
  ASSERT_EQ(on_cpu.told.steps.size(), static_cast<size_t>(options.steps));
  options.device = kGpu;
  for (const bool graph : {true, false}) {
    SCOPED_TRACE(graph ? "graph" : "op by op");
    options.graph = graph;
    TinyRun on_gpu(options);
    train(on_gpu, loss_scale);
    expect_same(on_gpu, on_cpu);
  }
}

TinyOptions options_of(const char* recipe) {
  return {.recipe = recipe, .hidden = {48, 32}, .steps = 200, .eval_every = 100};
}

TEST(GpuTraining, HasTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : {"bf16,acc=hopper16",
                             "fp16,acc=hopper16",
                             "bf16-pure,acc=hopper16,update=stochastic",
                             "fp8-delayed,acc=hopper16",
                             "fp8-block,acc=hopper16",
                             "mxfp8,acc=hopper16"}) {
    TinyOptions options = options_of(recipe);
    options.grad_accum = 2;
    options.dropout = 0.1f;
    expect_same_training(options);
  }
}

TEST(GpuTraining, RunsShorterBatchesBetweenReplays) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const int64_t grad_accum : {1, 3}) {
    TinyOptions options = options_of("bf16,acc=hopper16");
    options.batch = 24;  // of 256 images: the eleventh of an epoch has 16
    options.grad_accum = grad_accum;
    expect_same_training(options);
  }
}

TEST(Cases, FC117_AnOverflowIsSkippedInsideTheGraph) {
  HALFTONE_SKIP_WITHOUT_GPU();
  TinyOptions options = options_of("fp16,acc=hopper16");
  expect_same_training(options, 0x1p24f);
  TinyRun on_gpu(options);
  train(on_gpu, 0x1p24f);
  EXPECT_EQ(on_gpu.told.steps[2].skipped, 1);  // the second replay
  EXPECT_EQ(on_gpu.told.steps.back().skipped, 0);
}

TEST(GpuTraining, TwoRunsAreByteIdentical) {
  HALFTONE_SKIP_WITHOUT_GPU();
  TinyOptions options = options_of("fp8-block");
  options.device = kGpu;
  options.dropout = 0.1f;
  TinyRun one(options);
  TinyRun other(options);
  one.train();
  other.train();
  expect_same(other, one);
}

TEST(GpuTraining, GoesOnFromACheckpointWithTheSameBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const TempFolder folder;
  for (const char* recipe : {"fp16", "fp8-delayed", "mxfp8"}) {
    SCOPED_TRACE(recipe);
    TinyOptions options = options_of(recipe);
    options.device = kGpu;
    options.dropout = 0.1f;
    options.steps = 60;
    TinyRun whole(options);
    whole.train();
    const std::string path = (folder / concat(recipe, ".h5")).string();
    options.stop_after = 23;
    TinyRun first(options);
    first.train({.save = [&] {
      save_checkpoint(path, first.parts(), "{}");
      return path;
    }});
    options.stop_after = -1;
    TinyRun rest(options);
    Checkpoint(path).restore(rest.parts());
    rest.train();
    EXPECT_TRUE(same_bits(rest.weights(), whole.weights()));
    EXPECT_TRUE(same_bits(bytes_of(rest.told.steps),
                          bytes_of({whole.told.steps.begin() + 23, whole.told.steps.end()})));
  }
}

}  // namespace
}  // namespace halftone
