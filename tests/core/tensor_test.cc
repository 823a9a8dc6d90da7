#include "core/tensor.h"

#include <gtest/gtest.h>

namespace halftone {
namespace {

TEST(Shape, CountsFromBothEnds) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.numel(), 30);
  EXPECT_EQ(s[-1], 5);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{4, 0}.numel()), 0);
  EXPECT_EQ(concat(s), "[2, 3, 5]");
  EXPECT_THROW(s[3], std::invalid_argument);
  EXPECT_THROW((Shape{-1}), std::invalid_argument);
}

TEST(Tensor, ViewsShareTheirElements) {
  Tensor t = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor transposed = t.view({3, 2}, {1, 3}, 0);
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_EQ(transposed.to_doubles(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  const Tensor row = t.view({3}, {1}, 3);
  row.data<float>()[0] = 7;
  EXPECT_EQ(t.to_doubles()[3], 7);
  EXPECT_EQ(t.view({6}).to_doubles()[3], 7);
}

TEST(Tensor, ADimensionOfOneNeverBreaksContiguity) {
  const Tensor t = Tensor::from<float>({1, 2, 3}, {3, 1});
  EXPECT_TRUE(t.view({1, 3}, {99, 1}, 0).is_contiguous());
}

TEST(Tensor, SaysWhatIsWrong) {
  const Tensor t = Tensor::zeros({2, 3}, DType::f32);
  EXPECT_THROW(t.data<double>(), std::invalid_argument);
  EXPECT_THROW(t.item(), std::invalid_argument);
  EXPECT_THROW(t.view(Shape{7}), std::invalid_argument);
  EXPECT_THROW(Tensor().raw(), std::invalid_argument);
  EXPECT_THROW(Tensor::from<float>({1, 2}, {3}), std::invalid_argument);
  EXPECT_THROW(copy(t, Tensor::zeros({2, 3}, DType::bf16)), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros({1}, DType::i32).set_requires_grad(), std::invalid_argument);
}

TEST(Tensor, CopiesAndFills) {
  const Tensor a = Tensor::from<float>({1, 2, 3}, {3});
  const Tensor b = Tensor::empty({3}, DType::f32);
  copy(a, b);
  EXPECT_EQ(b.to_doubles(), a.to_doubles());
  fill_zero(b);
  EXPECT_EQ(b.to_doubles(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(to_device(a, Device{}).raw(), a.raw());
}

TEST(Tensor, ADeviceThatThisBuildLacksIsRefused) {
  if (kHasCuda) {
    GTEST_SKIP() << "this build has CUDA";
  }
  EXPECT_THROW(Tensor::zeros({1}, DType::f32, Device{DeviceType::cuda, 0}), std::logic_error);
}

}  // namespace
}  // namespace halftone
