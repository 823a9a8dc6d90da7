#include "ops/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

Tensor run_softmax(const Tensors& in) { return softmax(in[0]); }

TEST(Softmax, HandComputedRow) {
  const double third = std::log(3.0);
  const std::vector<double> y =
      softmax(Tensor::from<double>({1000.0, 1000.0 + third}, {1, 2})).to_doubles();
  EXPECT_NEAR(y[0], 0.25, 1e-13);
  EXPECT_NEAR(y[1], 0.75, 1e-13);
}

TEST(Softmax, BackwardMatchesFiniteDifferences) {
  for (const Shape& shape : {Shape{1}, Shape{3, 1}, Shape{2, 7}, Shape{2, 3, 31}, Shape{1, 257}}) {
    EXPECT_TRUE(testing::gradcheck(run_softmax, {random_tensor(shape, 1)}));
  }
}

TEST(Softmax, NarrowTypesMatchDouble) {
  for (const int64_t columns : {1, 7, 127, 128, 129, 256, 257, 5000}) {
    // An exponential is off by the rounding of its argument, up to 16 here, times u. Rounding y
    // moves y (dy - dot) by u y (|dy - dot| + sum y |dy|): by u of itself and u of the largest
    // |dy|, 3.5.
    testing::expect_like_double(run_softmax,
                                {random_tensor({5, columns}, 2, 2.0)},
                                {.computed = 32},
                                {.computed = 64, .stored = 2, .magnitude = 3.5});
  }
}

TEST(Softmax, NothingToDoAndWrongInputs) {
  EXPECT_EQ(softmax(Tensor::zeros({0, 4}, DType::f32)).numel(), 0);
  EXPECT_EQ(softmax(Tensor::zeros({4, 0}, DType::f32)).numel(), 0);
  EXPECT_THROW(softmax(Tensor::zeros({}, DType::f32)), std::invalid_argument);
  EXPECT_THROW(softmax(Tensor::zeros({4}, DType::i32)), std::invalid_argument);
}

TEST(Cases, FC38_FullyMaskedRowGivesZeros) {
  constexpr double kInf = HUGE_VAL;
  const Tensor masked =
      Tensor::from<double>({0.5, -1, 2, -kInf, -kInf, -kInf, -kInf, -kInf, 1, 0, -kInf, 3}, {3, 4});
  const Tensor open = Tensor::from<double>({0.5, -1, 2, -kInf, 1, 1, 1, 1, 1, 0, -kInf, 3}, {3, 4});
  const Tensor dy = random_tensor({3, 4}, 3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const testing::OpResult r = testing::run_op(run_softmax, {masked}, dy, dtype);
    const testing::OpResult other = testing::run_op(run_softmax, {open}, dy, dtype);
    for (size_t result = 0; result < 2; ++result) {
      for (size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(r[result][i], i / 4 == 1 ? 0.0 : other[result][i]) << "element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace halftone
