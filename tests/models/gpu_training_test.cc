// Training on a GPU is training on the CPU: with the Tensor Core's arithmetic on both sides, every
// loss, norm, scale and weight has the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/bits.h"
#include "tests/support/devices.h"
#include "tests/support/tiny_run.h"

namespace halftone {
namespace {

using testing::kGpu;
using testing::same_bits;
using testing::TinyOptions;
using testing::TinyRun;

std::vector<uint8_t> bytes_of(const std::vector<StepRecord>& records) {
  std::vector<uint8_t> bytes(records.size() * sizeof(StepRecord));
  std::memcpy(bytes.data(), records.data(), bytes.size());
  return bytes;
}

void expect_same_training(TinyOptions options) {
  SCOPED_TRACE(options.recipe);
  TinyRun on_cpu(options);
  on_cpu.train();
  options.device = kGpu;
  TinyRun on_gpu(options);
  on_gpu.train();
  ASSERT_EQ(on_cpu.told.steps.size(), static_cast<size_t>(options.steps));
  for (size_t i = 0; i < on_cpu.told.steps.size(); ++i) {
    ASSERT_TRUE(same_bits(bytes_of({on_gpu.told.steps[i]}), bytes_of({on_cpu.told.steps[i]})))
        << "step " << i + 1 << ": loss " << on_gpu.told.steps[i].loss << ", on the CPU "
        << on_cpu.told.steps[i].loss;
  }
  EXPECT_TRUE(same_bits(on_gpu.weights(), on_cpu.weights()));
  ASSERT_EQ(on_cpu.told.evals.size(), on_gpu.told.evals.size());
  for (size_t i = 0; i < on_cpu.told.evals.size(); ++i) {
    EXPECT_EQ(on_gpu.told.evals[i].evaluation.loss, on_cpu.told.evals[i].evaluation.loss);
  }
}

TEST(GpuTraining, HasTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : {"bf16,acc=hopper16",
                             "fp16,acc=hopper16",
                             "bf16-pure,acc=hopper16,update=stochastic",
                             "fp8-delayed,acc=hopper16",
                             "fp8-block,acc=hopper16",
                             "mxfp8,acc=hopper16"}) {
    TinyOptions options;
    options.recipe = recipe;
    options.hidden = {48, 32};
    options.steps = 200;
    options.grad_accum = 2;
    options.dropout = 0.1f;
    options.eval_every = 100;
    expect_same_training(options);
  }
}

}  // namespace
}  // namespace halftone
