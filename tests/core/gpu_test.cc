#include "core/cuda/gpu.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/throws.h"

namespace halftone::cuda {
namespace {

using testing::expect_holds;

GpuFacts usable() {
  return {.count = 1,
          .driver = 13000,
          .runtime = 13000,
          .name = "NVIDIA H200",
          .compute_capability = 90,
          .multiprocessors = 132,
          .has_code = true};
}

TEST(Gpu, AGoodOneIsUsable) {
  EXPECT_EQ(why_unusable(usable()), "");
  EXPECT_EQ(describe(usable()), "NVIDIA H200, compute capability 9.0");
}

TEST(Gpu, SaysThatThereIsNoDriverOrNoDevice) {
  EXPECT_EQ(why_unusable({.runtime = 13000, .driver_is_too_old = true}),
            "there is no NVIDIA driver");
  expect_holds(why_unusable({.driver = 13000, .runtime = 13000}), "shows no GPU");
}

TEST(Gpu, NamesTheVersionsOfAnOldDriver) {
  GpuFacts facts = usable();
  facts.driver = 12040;
  facts.driver_is_too_old = true;
  expect_holds(why_unusable(facts), "CUDA 12.4", "13.0", "update the driver");
}

TEST(Gpu, SaysWhichGpusThereAre) {
  GpuFacts facts = usable();
  facts.index = 1;
  expect_holds(why_unusable(facts), "cuda:0");
  facts.index = facts.count = 4;
  expect_holds(why_unusable(facts), "4 GPUs", "cuda:3");
}

TEST(Gpu, NamesACardThatIsTooOldOrLacksCode) {
  GpuFacts facts = usable();
  facts.name = "NVIDIA GeForce GTX 1080";
  facts.compute_capability = 61;
  expect_holds(why_unusable(facts), "GTX 1080", "6.1", "7.5");
  facts = usable();
  facts.has_code = false;
  expect_holds(why_unusable(facts), "NVIDIA H200", "CMAKE_CUDA_ARCHITECTURES=90a");
  facts.compute_capability = 75;
  expect_holds(why_unusable(facts), "CMAKE_CUDA_ARCHITECTURES=75");
}

TEST(Gpu, OtherTroubleKeepsItsWords) {
  GpuFacts facts = usable();
  facts.error = "all CUDA-capable devices are busy or unavailable";
  EXPECT_EQ(why_unusable(facts), facts.error);
}

TEST(Gpu, InspectionAgreesWithTheDeviceCount) {
  EXPECT_EQ(why_unusable(inspect_gpu(0)).empty(), testing::has_gpu());
  EXPECT_NE(why_unusable(inspect_gpu(1000)), "");
  if (!kHasCuda) {
    EXPECT_EQ(why_unusable(inspect_gpu(0)), "this build has no CUDA code");
  }
}

}  // namespace
}  // namespace halftone::cuda
