#include "ops/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/add/add.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

const Over kOver[] = {Over::all, Over::last, Over::leading};

TEST(Reduce, HandComputed) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(sum(x).item(), 21);
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, Over::last).to_doubles(), (std::vector<double>{6, 15}));
  EXPECT_EQ(mean(x, Over::leading).to_doubles(), (std::vector<double>{2.5, 3.5, 4.5}));
  EXPECT_EQ(sum(Tensor::zeros({2, 3, 4}, DType::f32), Over::leading).shape(), (Shape{3, 4}));
  EXPECT_EQ(sum(Tensor::zeros({0, 3}, DType::f32), Over::leading).to_doubles(),
            (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::isnan(mean(Tensor::zeros({0}, DType::f32)).item()));
}

TEST(Reduce, BackwardMatchesFiniteDifferences) {
  for (const Over over : kOver) {
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{5, 13}, Shape{2, 3, 5}, Shape{129, 1}}) {
      const Tensor x = random_tensor(shape, 1);
      EXPECT_TRUE(testing::gradcheck([=](const Tensors& in) { return sum(in[0], over); }, {x}));
      EXPECT_TRUE(testing::gradcheck([=](const Tensors& in) { return mean(in[0], over); }, {x}));
    }
  }
}

TEST(Reduce, NarrowTypesMatchDouble) {
  for (const Over over : kOver) {
    for (const Shape& shape : {Shape{1}, Shape{127}, Shape{129, 257}, Shape{3, 5000}}) {
      const Tensor x = random_tensor(shape, 2);
      const auto f = [=](const Tensors& in) { return mean(in[0], over); };
      // Trees at most 40 deep; the magnitudes added exceed the largest mean by up to sqrt(33153).
      testing::expect_like_double(f, {x}, {.computed = 40 * 182}, {.computed = 1});
    }
  }
}

TEST(Reduce, WrongInputsThrow) {
  EXPECT_THROW(sum(Tensor::zeros({}, DType::f32), Over::last), std::invalid_argument);
  EXPECT_THROW(mean(Tensor::zeros({3}, DType::i32)), std::invalid_argument);
}

TEST(Cases, FC51_SumsOfNarrowOnesDoNotSaturate) {
  constexpr int64_t kN = 70000;
  const Tensor ones = Tensor::from<float>(std::vector<float>(kN, 1.0f), {kN, 1});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = testing::as_dtype(ones, dtype);
    for (const Over over : {Over::all, Over::leading}) {
      EXPECT_EQ(sum(x, over).to_doubles()[0], 70000.0);
      EXPECT_EQ(mean(x, over).to_doubles()[0], 1.0);
    }
    Tensor bias = Tensor::zeros({1}, dtype).set_requires_grad();
    const Tensor y = add(x, bias);
    backward(y, x);
    EXPECT_EQ(bias.grad().to_doubles()[0], 70000.0);
  }
}

}  // namespace
}  // namespace halftone
