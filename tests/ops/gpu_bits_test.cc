// Every op on a GPU gives the CPU's bits: outputs and gradients, in every dtype a GPU takes, over
// sizes around those of warps, chunks, panels and packs. `Sanitize` runs one shape of each, for
// compute-sanitizer.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "ops/cast/cast.h"
#include "ops/gelu/gelu.h"
#include "ops/relu/relu.h"
#include "ops/reshape/reshape.h"
#include "ops/silu/silu.h"
#include "ops/slice/slice.h"
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
};

std::vector<Shape> one(const Shape& s) { return {s}; }
std::vector<Shape> of_three_axes(const Shape& s) { return {{s[0], 3, s[1]}}; }

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases{
      {"relu", [](const Tensors& in) { return relu(in[0]); }, one},
      {"gelu", [](const Tensors& in) { return gelu(in[0]); }, one},
      {"gelu_exact", [](const Tensors& in) { return gelu_exact(in[0]); }, one},
      {"silu", [](const Tensors& in) { return silu(in[0]); }, one},
      {"squared_relu", [](const Tensors& in) { return squared_relu(in[0]); }, one},
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
                             Shape{1031, 8}}) {
    expect_same_on_gpu(op.run, inputs_of(op, shape));
  }
}

class Sanitize : public ::testing::TestWithParam<OpCase> {};

TEST_P(Sanitize, OneShape) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const OpCase& op = GetParam();
  expect_same_on_gpu(op.run, inputs_of(op, {131, 67}));
}

std::string name_of_case(const ::testing::TestParamInfo<OpCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Ops, GpuBits, ::testing::ValuesIn(op_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Ops, Sanitize, ::testing::ValuesIn(op_cases()), name_of_case);

TEST(GpuBits, AreTheCpusWithoutElements) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const OpCase& op : op_cases()) {
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
        op.name.find("_columns") == std::string::npos && !op.name.starts_with("transpose")) {
      SCOPED_TRACE(op.name);
      expect_same_on_gpu(op.run, {x});
    }
  }
}

TEST(GpuBits, RefuseFp64) {
  HALFTONE_SKIP_WITHOUT_GPU();
  EXPECT_THROW(gelu(to_device(random_tensor({3}, 8), testing::kGpu)), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
