// relu, gelu (both forms) and silu.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/gelu/gelu.h"
#include "ops/op.h"
#include "ops/relu/relu.h"
#include "ops/silu/silu.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_like_double;
using testing::gradcheck;
using testing::random_tensor;
using testing::Tensors;

const Shape kShapes[] = {{1}, {7, 13}, {127}, {128, 3}, {129}, {3, 8192}};

// Values at least 0.05 away from relu's kink.
Tensor off_kink(const Shape& shape, uint32_t seed) {
  Tensor x = random_tensor(shape, seed, 2.0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    double& v = x.data<double>()[i];
    v += v < 0 ? -0.05 : 0.05;
  }
  return x;
}

Tensor run_relu(const Tensors& in) { return relu(in[0]); }
Tensor run_gelu(const Tensors& in) { return gelu(in[0]); }
Tensor run_gelu_exact(const Tensors& in) { return gelu_exact(in[0]); }
Tensor run_silu(const Tensors& in) { return silu(in[0]); }

TEST(Activations, HandComputedValues) {
  const Tensor x = Tensor::from<double>({-1.0, 0.0, 2.0}, {3});
  EXPECT_EQ(relu(x).to_doubles(), (std::vector<double>{0.0, 0.0, 2.0}));
  const double tanh_form = 1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (2.0 + 0.044715 * 8.0));
  EXPECT_NEAR(gelu(x).to_doubles()[2], tanh_form, 1e-15);
  EXPECT_NEAR(gelu_exact(x).to_doubles()[2], 1.0 + std::erf(std::sqrt(2.0)), 1e-15);
  EXPECT_NEAR(silu(x).to_doubles()[0], -1.0 / (1.0 + std::exp(1.0)), 1e-16);
}

TEST(Activations, BackwardMatchesFiniteDifferences) {
  for (const Shape& shape : {Shape{1}, Shape{7, 13}, Shape{127}, Shape{3, 43}}) {
    const Tensor x = off_kink(shape, 1);
    EXPECT_TRUE(gradcheck(run_relu, {x}));
    EXPECT_TRUE(gradcheck(run_gelu, {x}));
    EXPECT_TRUE(gradcheck(run_gelu_exact, {x}));
    EXPECT_TRUE(gradcheck(run_silu, {x}));
  }
}

TEST(Activations, NarrowTypesMatchDouble) {
  for (const Shape& shape : kShapes) {
    const Tensor x = off_kink(shape, 2);
    expect_like_double(run_relu, {x}, {.computed = 0}, {.computed = 0});
    // core/math.h: values within 4 ulp, slopes within 2^-21, of values of size 1 and more.
    expect_like_double(run_gelu, {x}, {.computed = 8}, {.computed = 16});
    expect_like_double(run_gelu_exact, {x}, {.computed = 8}, {.computed = 16});
    expect_like_double(run_silu, {x}, {.computed = 8}, {.computed = 16});
  }
}

TEST(Activations, ReluKeepsNaN) {
  const Tensor x = Tensor::from<float>({NAN, -INFINITY, INFINITY}, {3});
  const std::vector<double> y = relu(x).to_doubles();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0.0);
  EXPECT_EQ(y[2], INFINITY);
}

TEST(Activations, IntegersAreRefused) {
  const Tensor x = Tensor::from<int32_t>({1}, {1});
  EXPECT_THROW(relu(x), std::invalid_argument);
  EXPECT_THROW(gelu(x), std::invalid_argument);
  EXPECT_THROW(silu(x), std::invalid_argument);
  EXPECT_THROW(gelu(Tensor()), std::invalid_argument);
  EXPECT_THROW(gelu(Tensor::zeros({2, 3}, DType::f32).view({3, 2}, {1, 3}, 0)),
               std::invalid_argument);
}

// As in examples/custom_op.cc: a function of one's own has no kernel.
TEST(Activations, AnOpWithoutAKernelSaysSoOnAGpu) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const Tensor x = Tensor::zeros({3}, DType::f32, testing::kGpu);
  const std::string message = testing::message_of<std::logic_error>(
      [&] { map("softsign", x, [](auto v) { return v / (1 + std::abs(v)); }); });
  testing::expect_holds(message, "softsign", "no CUDA kernel", "--device cpu");
}

TEST(Cases, FC42_GeluIsFiniteFarOut) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (auto* op : {&run_gelu, &run_gelu_exact, &run_silu}) {
      for (const double v : {8.0, 11.0, 40.0, 1e4, HUGE_VAL}) {
        const double far = op == &run_silu ? 4 * v : v;  // a sigmoid's tail is longer
        const Tensor x = Tensor::from<double>({far, -far}, {2});
        const Tensor ones = Tensor::from<double>({1.0, 1.0}, {2});
        const testing::OpResult r = testing::run_op(*op, {x}, ones, dtype);
        EXPECT_EQ(r[0][0], testing::as_dtype(x, dtype).to_doubles()[0]) << dtype << " at " << far;
        EXPECT_NEAR(r[0][1], 0.0, 1e-12) << dtype << " at " << -far;
        EXPECT_NEAR(r[1][0], 1.0, 1e-6) << dtype << " at " << far;
        EXPECT_NEAR(r[1][1], 0.0, 1e-6) << dtype << " at " << -far;
      }
    }
  }
}

}  // namespace
}  // namespace halftone
