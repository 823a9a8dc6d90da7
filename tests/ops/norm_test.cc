// layernorm, rmsnorm and residual_layernorm.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/add/add.h"
#include "ops/layernorm/layernorm.h"
#include "ops/residual_layernorm/residual_layernorm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

Tensor run_layernorm(const Tensors& in) { return layernorm(in[0], in[1], in[2]); }
Tensor run_layernorm_without_beta(const Tensors& in) { return layernorm(in[0], in[1], {}); }
Tensor run_rmsnorm(const Tensors& in) { return rmsnorm(in[0], in[1]); }
// Both results matter: y, and the stream that goes on.
Tensor run_residual(const Tensors& in) {
  const ResidualLayernorm r = residual_layernorm(in[0], in[1], in[2], in[3]);
  return add(r.y, residual_add(r.sum, r.sum));
}

TEST(Norm, HandComputedRow) {
  const Tensor x = Tensor::from<double>({1, 3}, {1, 2});
  const Tensor gamma = Tensor::from<double>({2, 3}, {2});
  const Tensor beta = Tensor::from<double>({10, 20}, {2});
  EXPECT_EQ(layernorm(x, gamma, beta, 0.0f).to_doubles(), (std::vector<double>{8, 23}));
  const double r = std::sqrt(5.0);  // of the mean square
  const std::vector<double> y = rmsnorm(x, gamma, 0.0f).to_doubles();
  EXPECT_NEAR(y[0], 2 / r, 1e-15);
  EXPECT_NEAR(y[1], 9 / r, 1e-15);
}

TEST(Norm, BackwardMatchesFiniteDifferences) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 3, 13}, Shape{130, 3}}) {
    const Tensor x = random_tensor(shape, 1);
    const Tensor gamma = random_tensor({shape[-1]}, 2);
    const Tensor beta = random_tensor({shape[-1]}, 3);
    EXPECT_TRUE(testing::gradcheck(run_layernorm, {x, gamma, beta}));
    EXPECT_TRUE(testing::gradcheck(run_layernorm_without_beta, {x, gamma}));
    EXPECT_TRUE(testing::gradcheck(run_residual, {x, random_tensor(shape, 4), gamma, beta}));
    EXPECT_TRUE(testing::gradcheck(run_rmsnorm, {x, gamma}));
  }
}

TEST(Norm, NarrowTypesMatchDouble) {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 127}, Shape{129, 128}, Shape{2, 4097}}) {
    const Tensor x = random_tensor(shape, 5);
    const Tensor gamma = random_tensor({shape[-1]}, 6);
    const Tensor beta = random_tensor({shape[-1]}, 7);
    // Sums of squares through trees at most 26 deep, whose error rstd halves; a column's terms add
    // up to up to sqrt(129) times the largest sum.
    testing::expect_like_double(
        run_layernorm, {x, gamma, beta}, {.computed = 32}, {.computed = 256});
    testing::expect_like_double(run_rmsnorm, {x, gamma}, {.computed = 32}, {.computed = 256});
  }
}

// dbeta is the sum of dy over the rows, by the lane tree written as its definition reads.
TEST(Norm, ParameterGradientsAreSummedByTheLaneTree) {
  constexpr int64_t kLanes = 2048;
  for (const int64_t rows : {1, 7, 8, 9, 21, 2048, 2049, 5000}) {
    const Tensor dy = testing::as_dtype(random_tensor({rows, 2}, 8), DType::f32);
    Tensor beta = Tensor::zeros({2}, DType::f32).set_requires_grad();
    const Tensor x = testing::as_dtype(random_tensor({rows, 2}, 9), DType::f32);
    backward(layernorm(x, Tensor::from<float>({1, 1}, {2}), beta), dy);
    for (int64_t c = 0; c < 2; ++c) {
      std::vector<float> level(kLanes, 0.0f);
      for (int64_t r = 0; r < rows; ++r) {
        level[static_cast<size_t>(r % kLanes)] += dy.data<float>()[2 * r + c];
      }
      for (; level.size() > 1; level.resize(level.size() / 2)) {
        for (size_t i = 0; i < level.size() / 2; ++i) {
          level[i] = level[2 * i] + level[2 * i + 1];
        }
      }
      EXPECT_EQ(beta.grad().data<float>()[c], level[0]) << rows << " rows";
    }
  }
}

TEST(Norm, FusedResidualHasTheBitsOfAddThenLayernorm) {
  for (const DType residual_dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor residual = testing::as_dtype(random_tensor({131, 37}, 8), residual_dtype);
      const Tensor branch = testing::as_dtype(random_tensor({131, 37}, 9), dtype);
      const Tensor gamma = testing::as_dtype(random_tensor({37}, 10), dtype);
      const Tensor beta = testing::as_dtype(random_tensor({37}, 11), dtype);
      const ResidualLayernorm fused = residual_layernorm(residual, branch, gamma, beta);
      const Tensor sum = residual_add(residual, branch);
      EXPECT_EQ(fused.sum.dtype(), residual_dtype);
      EXPECT_EQ(fused.y.dtype(), dtype);
      EXPECT_EQ(fused.sum.to_doubles(), sum.to_doubles());
      EXPECT_EQ(fused.y.to_doubles(), layernorm(sum, gamma, beta, 1e-5f, dtype).to_doubles());
    }
  }
}

TEST(Norm, GradientsOfAMixedStreamHaveTheirOwnDtypes) {
  // An FP32 stream joined by BF16 branches: dx of the norm adds to the stream's FP32 gradient.
  Tensor stream = testing::as_dtype(random_tensor({9, 16}, 12), DType::f32).set_requires_grad();
  Tensor branch = testing::as_dtype(random_tensor({9, 16}, 13), DType::bf16).set_requires_grad();
  Tensor gamma = testing::as_dtype(random_tensor({16}, 14), DType::bf16).set_requires_grad();
  const ResidualLayernorm r = residual_layernorm(stream, branch, gamma, {});
  const Tensor y = residual_add(r.sum, r.y);
  EXPECT_EQ(y.dtype(), DType::f32);
  backward(y, testing::as_dtype(random_tensor({9, 16}, 15), DType::f32));
  EXPECT_EQ(stream.grad().to_doubles(), branch.grad().to_doubles());
  EXPECT_EQ(gamma.grad().dtype(), DType::f32);
}

TEST(Norm, WrongInputsThrow) {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32);
  const Tensor three = Tensor::zeros({3}, DType::f32);
  const Tensor four = Tensor::zeros({4}, DType::f32);
  EXPECT_THROW(layernorm(x, four, three), std::invalid_argument);
  EXPECT_THROW(layernorm(x, three, four), std::invalid_argument);
  EXPECT_THROW(layernorm(x, three, Tensor::zeros({3}, DType::bf16)), std::invalid_argument);
  EXPECT_THROW(layernorm(x, Tensor(), three), std::invalid_argument);
  EXPECT_THROW(layernorm(x, three, three, -1.0f), std::invalid_argument);
  EXPECT_THROW(layernorm(x, three, three, 1e-5f, DType::f64), std::invalid_argument);
  EXPECT_THROW(rmsnorm(Tensor::zeros({2, 0}, DType::f32), Tensor::zeros({0}, DType::f32)),
               std::invalid_argument);
  EXPECT_THROW(residual_layernorm(x, Tensor::zeros({3, 2}, DType::f32), three, three),
               std::invalid_argument);
}

TEST(Cases, FC48_LayernormSurvivesALargeMean) {
  const struct {
    double mean, first;
  } rows[] = {{0, -1.341641}, {100, -1.341528}, {1000, -1.341508}, {10000, -1.331333}};
  const Tensor gamma = Tensor::from<float>(std::vector<float>(16, 1.0f), {16});
  for (const auto& row : rows) {
    std::vector<float> x(16);
    for (size_t i = 0; i < 16; ++i) {
      x[i] = static_cast<float>(row.mean + static_cast<double>(i) * 1e-3);
    }
    const Tensor y = layernorm(Tensor::from(x, {1, 16}), gamma, {});
    EXPECT_NEAR(y.to_doubles()[0], row.first, 1e-6) << "mean " << row.mean;
  }
  std::vector<float> far(256);
  for (size_t i = 0; i < far.size(); ++i) {
    far[i] = static_cast<float>(1e6 + static_cast<double>(i) * 1e-3 / 256);
  }
  const Tensor ones = Tensor::from<float>(std::vector<float>(256, 1.0f), {256});
  for (const double v : layernorm(Tensor::from(far, {1, 256}), ones, {}).to_doubles()) {
    EXPECT_TRUE(std::isfinite(v));
  }
}

}  // namespace
}  // namespace halftone
