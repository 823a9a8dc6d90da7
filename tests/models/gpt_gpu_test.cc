// A GPT trains on a GPU as on the CPU: with the Tensor Core's arithmetic on both sides, every loss,
// norm, scale and weight has the same bits, whether steps are replayed as a graph or launched op by
// op.
#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/same_training.h"
#include "tests/support/tiny_gpt.h"

namespace halftone {
namespace {

using testing::expect_same;
using testing::kGpu;
using testing::TinyGpt;
using testing::TinyGptOptions;

void expect_same_training(TinyGptOptions options) {
  SCOPED_TRACE(options.recipe);
  TinyGpt on_cpu(options);
  on_cpu.train();
  ASSERT_EQ(on_cpu.told.steps.size(), static_cast<size_t>(options.steps));
  options.device = kGpu;
  for (const bool graph : {true, false}) {
    SCOPED_TRACE(graph ? "graph" : "op by op");
    options.graph = graph;
    TinyGpt on_gpu(options);
    on_gpu.train();
    expect_same(on_gpu, on_cpu);
  }
}

TEST(GptGpu, TrainsWithTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : {"bf16,acc=hopper16", "fp16,acc=hopper16"}) {
    TinyGptOptions options;
    options.recipe = recipe;
    options.steps = 200;
    options.eval_every = 100;
    expect_same_training(options);
  }
}

TEST(GptGpu, TrainsWithTheCpusBitsInEveryRecipe) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : {"bf16-pure,acc=hopper16",
                             "fp8-delayed,acc=hopper16",
                             "fp8-block,acc=hopper16",
                             "mxfp8,acc=hopper16"}) {
    TinyGptOptions options;
    options.recipe = recipe;
    options.gpt.dropout = 0.2f;
    options.gpt.has_bias = true;
    options.gpt.recompute = true;
    options.steps = 20;
    options.grad_accum = 2;
    expect_same_training(options);
  }
}

TEST(Cases, FC104_TwoGptRunsOnAGpuHaveTheSameBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : {"fp32", "bf16", "fp16", "fp8-block"}) {
    TinyGptOptions options;
    options.recipe = recipe;
    options.gpt.dropout = 0.2f;
    options.gpt.vocab = 5;  // repeated tokens
    options.steps = 50;
    options.device = kGpu;
    TinyGpt first(options);
    TinyGpt second(options);
    first.train();
    second.train();
    expect_same(second, first);
  }
}

}  // namespace
}  // namespace halftone
