#include "core/staging.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/devices.h"

namespace halftone {
namespace {

class StagingTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda()) {
      HALFTONE_SKIP_WITHOUT_GPU();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices,
                         StagingTest,
                         ::testing::Values(Device{}, testing::kGpu),
                         [](const auto& it) { return it.param.is_cpu() ? "cpu" : "cuda"; });

TEST_P(StagingTest, EveryFillArrivesInOrder) {
  constexpr int64_t kSize = 100000;
  Staging staging(GetParam(), kSize * sizeof(int32_t), 3);
  const Tensor to = Tensor::zeros({kSize}, DType::i32, GetParam());
  std::vector<Tensor> seen;  // copies on the device: nothing waits between the fills
  for (int32_t i = 0; i < 10; ++i) {
    staging.fill(to, [&](void* memory) { std::fill_n(static_cast<int32_t*>(memory), kSize, i); });
    seen.push_back(empty_like(to));
    copy(to, seen.back());
  }
  for (int32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(seen[static_cast<size_t>(i)].to_doubles(), std::vector<double>(kSize, i));
  }
}

TEST_P(StagingTest, WhatIsTooLargeThrows) {
  Staging staging(GetParam(), 8, 2);
  const auto nothing = [](void*) {};
  EXPECT_NO_THROW(staging.fill(Tensor::zeros({2}, DType::i32, GetParam()), nothing));
  EXPECT_THROW(staging.fill(Tensor::zeros({3}, DType::i32, GetParam()), nothing),
               std::invalid_argument);
}

}  // namespace
}  // namespace halftone
