#include "ops/dropout/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

Dropout make(float p, int64_t iteration = 3, int64_t micro_batch = 1, uint64_t seed = 42) {
  return {p, {seed, Tensor::from<int64_t>({iteration, micro_batch}, {2})}, "blocks.0.mlp.dropout"};
}

TEST(Dropout, KeepsWhatTheDrawsSay) {
  const Tensor x = Tensor::from<float>(std::vector<float>(1001, 1.0f), {7, 143});
  const std::vector<double> y = dropout(x, make(0.25f), true).to_doubles();
  const RandomStream stream{philox_key(42, "blocks.0.mlp.dropout"), 3, 1};
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], stream.draw(i) >= 0x40000000u ? 1.0f / 0.75f : 0.0f) << i;
  }
}

TEST(Dropout, BackwardMatchesFiniteDifferences) {
  const auto f = [](const Tensors& in) { return dropout(in[0], make(0.4f), true); };
  for (const Shape& shape : {Shape{1}, Shape{7, 13}, Shape{129}}) {
    EXPECT_TRUE(testing::gradcheck(f, {random_tensor(shape, 1)}));
  }
}

TEST(Dropout, NarrowTypesMatchDouble) {
  const auto f = [](const Tensors& in) { return dropout(in[0], make(0.4f), true); };
  for (const Shape& shape : {Shape{1}, Shape{2047}, Shape{2048}, Shape{3, 2049}}) {
    testing::expect_like_double(f, {random_tensor(shape, 2)}, {.computed = 0}, {.computed = 0});
  }
}

TEST(Dropout, TheMaskFollowsEveryCounter) {
  const Tensor x = Tensor::from<float>(std::vector<float>(4096, 1.0f), {4096});
  const auto y = dropout(x, make(0.5f), true).to_doubles();
  EXPECT_EQ(dropout(x, make(0.5f), true).to_doubles(), y);
  EXPECT_NE(dropout(x, make(0.5f, 4), true).to_doubles(), y);
  EXPECT_NE(dropout(x, make(0.5f, 3, 2), true).to_doubles(), y);
  EXPECT_NE(dropout(x, make(0.5f, 3, 1, 43), true).to_doubles(), y);
  Dropout other = make(0.5f);
  other.purpose = "blocks.1.mlp.dropout";
  EXPECT_NE(dropout(x, other, true).to_doubles(), y);
}

TEST(Dropout, BackwardUsesTheForwardMaskAfterTheCountersMoved) {
  Tensor x = Tensor::from<float>(std::vector<float>(1000, 1.0f), {1000}).set_requires_grad();
  const Dropout d = make(0.5f);
  const Tensor y = dropout(x, d, true);
  d.random.counters.data<int64_t>()[1] = 9;
  const Tensor ones = Tensor::from<float>(std::vector<float>(1000, 1.0f), {1000});
  const std::vector<double> mask = y.to_doubles();
  backward(y, ones);
  EXPECT_EQ(x.grad().to_doubles(), mask);
}

TEST(Dropout, DropsTheShareAskedFor) {
  constexpr int64_t kN = 1 << 18;
  const Tensor x = Tensor::from<float>(std::vector<float>(kN, 1.0f), {kN});
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const std::vector<double> y = dropout(x, make(p), true).to_doubles();
    const auto dropped = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
    const double sigma = std::sqrt(kN * p * (1.0 - p));
    EXPECT_NEAR(dropped, kN * static_cast<double>(p), 5 * sigma) << p;
  }
}

TEST(Dropout, EvaluationAndZeroAreTheIdentityAndOneDropsEverything) {
  const Tensor x = Tensor::from<float>({1, NAN, 3}, {3});
  EXPECT_EQ(dropout(x, make(0.5f), false).raw(), x.raw());
  EXPECT_EQ(dropout(x, {}, true).raw(), x.raw());
  EXPECT_EQ(dropout(x, make(1.0f), true).to_doubles(), (std::vector<double>{0, 0, 0}));
  EXPECT_THROW(dropout(x, make(1.5f), true), std::invalid_argument);
  EXPECT_THROW(dropout(x, make(std::nanf("")), true), std::invalid_argument);
  EXPECT_THROW(dropout(x, {.p = 0.5f, .purpose = "p"}, true), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
