// Every op on a GPU gives the CPU's bits: outputs and gradients, in every dtype a GPU takes, over
// sizes around those of warps, chunks, panels and packs. `Sanitize` runs one shape of each, for
// compute-sanitizer. Ops of other kinds of results are in quantize_gpu_test and
// optimizer_step_gpu_test.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "ops/accuracy/accuracy.h"
#include "ops/add/add.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/layernorm/layernorm.h"
#include "ops/mul/mul.h"
#include "ops/reduce/reduce.h"
#include "ops/relu/relu.h"
#include "ops/reshape/reshape.h"
#include "ops/residual_layernorm/residual_layernorm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/silu/silu.h"
#include "ops/slice/slice.h"
#include "ops/softmax/softmax.h"
#include "ops/squared_relu/squared_relu.h"
#include "ops/transpose/transpose.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::expect_same_on_gpu;
using testing::random_tensor;
using testing::TensorFunction;
using testing::Tensors;

// An op on inputs made from the shape [rows, columns] of the first.
struct OpCase {
  std::string name;
  TensorFunction run;
  std::vector<Shape> (*shapes)(const Shape&);

  friend void PrintTo(const OpCase& op, std::ostream* to) { *to << op.name; }
};

std::vector<Shape> one(const Shape& s) { return {s}; }
std::vector<Shape> two(const Shape& s) { return {s, s}; }
std::vector<Shape> and_a_row(const Shape& s) { return {s, {s[1]}}; }
std::vector<Shape> and_a_column(const Shape& s) { return {s, {s[0], 1}}; }
std::vector<Shape> and_a_scalar(const Shape& s) { return {s, {}}; }
std::vector<Shape> around(const Shape& s) { return {{3, s[0], s[1]}, {s[0], 1}}; }
std::vector<Shape> between(const Shape& s) { return {{s[0], 3, s[1]}, {s[0], 1, s[1]}}; }
std::vector<Shape> of_three_axes(const Shape& s) { return {{s[0], 3, s[1]}}; }
std::vector<Shape> and_gamma_beta(const Shape& s) { return {s, {s[1]}, {s[1]}}; }
std::vector<Shape> joined(const Shape& s) { return {s, s, {s[1]}, {s[1]}}; }

Device device_of(const Tensors& in) { return in[0].device(); }

// i32 tokens below `vocab`, in an order that repeats some and leaves others out.
Tensor tokens_below(int64_t vocab, const Shape& shape, Device device) {
  std::vector<int32_t> tokens(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * i * 7 % static_cast<size_t>(vocab));
  }
  return to_device(Tensor::from(tokens, shape), device);
}

// Targets of every kind: valid ones, ignored ones.
Tensor targets_of(const Tensor& logits, Device device) {
  Tensor targets = tokens_below(logits.size(1) - 1, {logits.size(0)}, {});
  for (int64_t i = 0; i < targets.numel(); i += 5) {
    targets.data<int32_t>()[i] = kIgnoreTarget;
  }
  return to_device(targets, device);
}

Tensor run_dropout(const Tensors& in) {
  const Tensor counters = to_device(Tensor::from<int64_t>({7, 2}, {2}), device_of(in));
  return dropout(in[0], {0.3f, {42, counters}, "test"}, true);
}
Tensor run_loss(const Tensors& in) {
  return cross_entropy(in[0], targets_of(in[0], device_of(in)), {.vocab = in[0].size(1) - 1}).loss;
}
Tensor run_weighted_loss(const Tensors& in) {
  const Tensor weight = to_device(Tensor::from<float>({0.37f}, {}), device_of(in));
  return cross_entropy(in[0], targets_of(in[0], device_of(in)), {.weight = weight}).loss;
}
Tensor run_residual(const Tensors& in) {
  const ResidualLayernorm r = residual_layernorm(in[0], in[1], in[2], in[3]);
  return add(r.y, residual_add(r.sum, in[1]));
}
// Twice the same input: its second gradient adds to the first.
Tensor run_twice(const Tensors& in) { return mul(gelu(in[0]), softmax(in[0])); }
Tensor run_embedding(const Tensors& in) {
  const int64_t length = in[1].size(0);
  return embedding(tokens_below(in[0].size(0), {5, length}, device_of(in)), in[0], in[1]);
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases{
      {"relu", [](const Tensors& in) { return relu(in[0]); }, one},
      {"gelu", [](const Tensors& in) { return gelu(in[0]); }, one},
      {"gelu_exact", [](const Tensors& in) { return gelu_exact(in[0]); }, one},
      {"silu", [](const Tensors& in) { return silu(in[0]); }, one},
      {"squared_relu", [](const Tensors& in) { return squared_relu(in[0]); }, one},
      {"add", [](const Tensors& in) { return add(in[0], in[1]); }, two},
      {"add_row", [](const Tensors& in) { return add(in[0], in[1]); }, and_a_row},
      {"add_column", [](const Tensors& in) { return add(in[1], in[0]); }, and_a_column},
      {"mul", [](const Tensors& in) { return mul(in[0], in[1]); }, two},
      {"mul_row", [](const Tensors& in) { return mul(in[0], in[1]); }, and_a_row},
      {"mul_column", [](const Tensors& in) { return mul(in[0], in[1]); }, and_a_column},
      {"mul_scalar", [](const Tensors& in) { return mul(in[1], in[0]); }, and_a_scalar},
      {"mul_around", [](const Tensors& in) { return mul(in[0], in[1]); }, around},
      {"mul_between", [](const Tensors& in) { return mul(in[0], in[1]); }, between},
      {"to_f32", [](const Tensors& in) { return cast(gelu(in[0]), DType::f32); }, one},
      {"to_bf16", [](const Tensors& in) { return cast(gelu(in[0]), DType::bf16); }, one},
      {"to_f16", [](const Tensors& in) { return cast(gelu(in[0]), DType::f16); }, one},
      {"transpose", [](const Tensors& in) { return transpose(in[0]); }, one},
      {"transpose_outer", [](const Tensors& in) { return transpose(in[0], 0, 1); }, of_three_axes},
      {"slice_rows",
       [](const Tensors& in) { return slice(in[0], 0, in[0].size(0) / 3, in[0].size(0)); },
       one},
      {"slice_columns",
       [](const Tensors& in) { return slice(in[0], 1, in[0].size(1) / 3, in[0].size(1)); },
       one},
      {"reshape", [](const Tensors& in) { return reshape(in[0], {in[0].numel()}); }, one},
      {"sum", [](const Tensors& in) { return sum(in[0]); }, one},
      {"sum_last", [](const Tensors& in) { return sum(in[0], Over::last); }, one},
      {"sum_leading", [](const Tensors& in) { return sum(in[0], Over::leading); }, one},
      {"mean", [](const Tensors& in) { return mean(in[0]); }, one},
      {"mean_last", [](const Tensors& in) { return mean(in[0], Over::last); }, one},
      {"mean_leading", [](const Tensors& in) { return mean(in[0], Over::leading); }, one},
      {"softmax", [](const Tensors& in) { return softmax(in[0]); }, one},
      {"dropout", run_dropout, one},
      {"twice", run_twice, one},
      {"layernorm",
       [](const Tensors& in) { return layernorm(in[0], in[1], in[2]); },
       and_gamma_beta},
      {"layernorm_without_beta",
       [](const Tensors& in) { return layernorm(in[0], in[1], {}); },
       and_a_row},
      {"layernorm_to_f32",
       [](const Tensors& in) { return layernorm(in[0], in[1], in[2], 1e-5f, DType::f32); },
       and_gamma_beta},
      {"rmsnorm", [](const Tensors& in) { return rmsnorm(in[0], in[1]); }, and_a_row},
      {"residual_layernorm", run_residual, joined},
      {"cross_entropy", run_loss, one},
      {"cross_entropy_weighted", run_weighted_loss, one},
      {"embedding", run_embedding, two},
  };
  return cases;
}

Tensors inputs_of(const OpCase& op, const Shape& shape) {
  Tensors inputs;
  for (const Shape& s : op.shapes(shape)) {
    inputs.push_back(random_tensor(s, static_cast<uint32_t>(inputs.size() + 1), 2.0));
  }
  return inputs;
}

class GpuBits : public ::testing::TestWithParam<OpCase> {};

TEST_P(GpuBits, AreTheCpusAtEverySize) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const OpCase& op = GetParam();
  for (const Shape& shape : {Shape{1, 2},
                             Shape{7, 13},
                             Shape{33, 31},
                             Shape{127, 32},
                             Shape{128, 33},
                             Shape{129, 255},
                             Shape{257, 257},
                             Shape{3, 4095},
                             Shape{2, 4097},
                             Shape{2, 8195},
                             Shape{1031, 16},
                             Shape{131, 264},
                             Shape{18, 768},
                             Shape{9, 1000},
                             Shape{7, 1600},
                             Shape{3, 12296}}) {
    expect_same_on_gpu(op.run, inputs_of(op, shape));
  }
}

std::vector<uint8_t> bytes_of(const Tensor& x) {
  const Tensor host = to_device(x, {});
  const auto* first = static_cast<const uint8_t*>(host.raw());
  return {first, first + host.bytes()};
}

// 12 runs at 20 odd shapes: over all ops 10,000 forward and backward passes.
TEST_P(GpuBits, AreTheSameInEveryRun) {
  HALFTONE_SKIP_WITHOUT_GPU();
  constexpr int kRuns = 12;
  constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
  const std::vector<Shape> shapes{{1, 2},     {1, 3},    {2, 7},    {3, 5},     {5, 129},
                                  {7, 33},    {9, 4097}, {11, 63},  {13, 257},  {17, 31},
                                  {19, 1023}, {31, 65},  {33, 3},   {37, 511},  {63, 127},
                                  {65, 9},    {67, 385}, {127, 17}, {129, 131}, {257, 15}};
  const OpCase& op = GetParam();
  for (size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(shapes[i]);
    Tensors leaves;
    for (const Tensor& x : inputs_of(op, shapes[i])) {
      leaves.push_back(to_device(testing::as_dtype(x, kDTypes[i % 3]), testing::kGpu));
      leaves.back().set_requires_grad();
    }
    std::vector<std::vector<uint8_t>> expected;
    for (int run = 0; run < kRuns; ++run) {
      const Tensor y = op.run(leaves);
      const Tensor dy =
          to_device(testing::as_dtype(random_tensor(y.shape(), 99), y.dtype()), testing::kGpu);
      backward(y, dy);
      std::vector<std::vector<uint8_t>> found{bytes_of(y)};
      for (Tensor& leaf : leaves) {
        found.push_back(bytes_of(leaf.grad()));
        leaf.reset_grad();
      }
      if (run == 0) {
        expected = std::move(found);
      } else {
        ASSERT_EQ(found, expected) << "run " << run;
      }
    }
  }
}

class Sanitize : public ::testing::TestWithParam<OpCase> {};

TEST_P(Sanitize, OneShape) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const OpCase& op = GetParam();
  // A shape for kernels that take any, and two for those that take aligned rows, short and long.
  for (const Shape& shape : {Shape{131, 67}, Shape{130, 72}, Shape{3, 4104}}) {
    expect_same_on_gpu(op.run, inputs_of(op, shape));
  }
}

std::string name_of_case(const ::testing::TestParamInfo<OpCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Ops, GpuBits, ::testing::ValuesIn(op_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Ops, Sanitize, ::testing::ValuesIn(op_cases()), name_of_case);

// More rows than the lane tree has lanes, so that a lane adds several.
void expect_same_norms(const std::vector<Shape>& shapes) {
  for (const OpCase& op : op_cases()) {
    if (op.name.find("norm") != std::string::npos) {
      for (const Shape& shape : shapes) {
        SCOPED_TRACE(concat(op.name, " of ", shape));
        expect_same_on_gpu(op.run, inputs_of(op, shape));
      }
    }
  }
}
TEST(GpuBits, NormsAddTheLanesOfManyRowsAsTheCpuDoes) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same_norms({{2049, 3}, {4103, 8}, {2300, 384}, {2099, 520}, {2085, 776}, {2050, 1288}});
}
TEST(Sanitize, NormsOfManyRows) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same_norms({{2059, 8}, {2059, 9}});
}

TEST(GpuBits, AreTheCpusWithoutElements) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const OpCase& op : op_cases()) {
    if (op.name.starts_with("embedding") || op.name.starts_with("cross")) {
      continue;  // they need a row or a column
    }
    SCOPED_TRACE(op.name);
    expect_same_on_gpu(op.run, inputs_of(op, {0, 5}));
  }
}

// Values at the edges of every dtype go through every function of one element.
TEST(GpuBits, AreTheCpusOfSpecialValues) {
  HALFTONE_SKIP_WITHOUT_GPU();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> values{0.0, -0.0, 1.0, -1.0, kInfinity, -kInfinity, std::nan("")};
  for (const double size : {1e-45, 6e-8, 6.1e-5, 1.2e-38, 0.33, 8.0, 65504.0, 65520.0, 3.3e38}) {
    values.insert(values.end(), {size, -size});
  }
  const Tensor x = Tensor::from(values, {static_cast<int64_t>(values.size())});
  for (const OpCase& op : op_cases()) {
    if (op.shapes == one && op.name.find("_rows") == std::string::npos &&
        op.name.find("_columns") == std::string::npos && !op.name.starts_with("transpose") &&
        !op.name.starts_with("cross")) {
      SCOPED_TRACE(op.name);
      expect_same_on_gpu(op.run, {x});
    }
  }
}

TEST(GpuBits, ALossCountsAndAPredictionScoresAsOnTheCpu) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const Shape& shape : {Shape{1, 2}, Shape{333, 10}, Shape{67, 5003}}) {
    const Tensor logits = testing::as_dtype(random_tensor(shape, 5), DType::bf16);
    const auto results = [&](Device device) {
      const Tensor x = to_device(logits, device);
      const Tensor targets = targets_of(logits, device);
      const CrossEntropy loss = cross_entropy(x, targets);
      return std::vector<double>{loss.loss.to_doubles()[0],
                                 loss.sum.to_doubles()[0],
                                 loss.count.to_doubles()[0],
                                 count_correct(x, targets).to_doubles()[0]};
    };
    EXPECT_EQ(results(testing::kGpu), results({})) << shape;
  }
}

// A GPU cannot look at targets without waiting: a wrong one must show.
TEST(GpuBits, ATargetOutsideTheVocabularyMakesTheLossNaN) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const Tensor logits =
      to_device(testing::as_dtype(random_tensor({3, 4}, 6), DType::f32), testing::kGpu);
  const Tensor targets = to_device(Tensor::from<int32_t>({0, 4, 1}, {3}), testing::kGpu);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, targets).loss.to_doubles()[0]));
  const Tensor table =
      to_device(testing::as_dtype(random_tensor({4, 2}, 7), DType::f32), testing::kGpu);
  const std::vector<double> y = embedding(targets, table).to_doubles();
  EXPECT_FALSE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(GpuBits, RefuseFp64) {
  HALFTONE_SKIP_WITHOUT_GPU();
  EXPECT_THROW(gelu(to_device(random_tensor({3}, 8), testing::kGpu)), std::invalid_argument);
}

// Dropout's mask is the forward pass's, though the counters move on before backward.
TEST(GpuBits, DropoutKeepsItsMaskForBackward) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const auto gradient = [](Device device) {
    const Tensor counters = to_device(Tensor::from<int64_t>({7, 2}, {2}), device);
    const Tensor x = to_device(testing::as_dtype(random_tensor({1000}, 9), DType::f32), device)
                         .set_requires_grad();
    const Tensor y = dropout(x, {0.5f, {42, counters}, "test"}, true);
    copy(Tensor::from<int64_t>({8, 0}, {2}), counters);
    backward(y, to_device(testing::as_dtype(random_tensor({1000}, 10), DType::f32), device));
    return x.grad().to_doubles();
  };
  EXPECT_EQ(gradient(testing::kGpu), gradient({}));
}

}  // namespace
}  // namespace halftone
