#include "ops/squared_relu/squared_relu.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::gradcheck;
using testing::random_tensor;
using testing::Tensors;

Tensor run(const Tensors& in) { return squared_relu(in[0]); }

TEST(SquaredRelu, HandComputedValues) {
  const Tensor x = Tensor::from<float>({-2.0f, 0.0f, 3.0f}, {3});
  EXPECT_EQ(squared_relu(x).to_doubles(), (std::vector<double>{0.0, 0.0, 9.0}));
  const Tensor nan = Tensor::from<float>({std::numeric_limits<float>::quiet_NaN()}, {1});
  EXPECT_TRUE(std::isnan(squared_relu(nan).item()));
}

TEST(SquaredRelu, BackwardMatchesFiniteDifferences) {
  for (const Shape& shape : {Shape{1}, Shape{7, 13}, Shape{129}}) {
    Tensor x = random_tensor(shape, 1);
    for (int64_t i = 0; i < x.numel(); ++i) {
      x.data<double>()[i] += x.data<double>()[i] < 0 ? -0.05 : 0.05;  // off the kink
    }
    EXPECT_TRUE(gradcheck(run, {x}));
  }
}

TEST(SquaredRelu, EveryDtypeMatchesDouble) {
  const Tensor x = random_tensor({7, 129}, 2);
  testing::expect_like_double(run, {x}, {.computed = 1}, {.computed = 2});
}

TEST(SquaredRelu, TheGpuGivesTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{257}, int64_t{100003}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto results = [&](Device device) {
        const Tensor x =
            to_device(testing::as_dtype(random_tensor({n}, 4), dtype), device).set_requires_grad();
        const Tensor y = squared_relu(x);
        backward(y, to_device(testing::as_dtype(random_tensor({n}, 5), dtype), device));
        return std::pair(y.to_doubles(), x.grad().to_doubles());
      };
      EXPECT_EQ(results(Device{}), results(testing::kGpu)) << n << " of " << dtype;
    }
  }
}

TEST(SquaredRelu, RefusesIntegers) {
  EXPECT_THROW(squared_relu(Tensor::zeros({3}, DType::i32)), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
