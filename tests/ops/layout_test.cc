// reshape, transpose, slice, cast and contiguous: ops that move elements without changing them.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/cast/cast.h"
#include "ops/reshape/reshape.h"
#include "ops/slice/slice.h"
#include "ops/transpose/transpose.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

TEST(Layout, HandComputed) {
  const Tensor x = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(transpose(x).to_doubles(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(transpose(x).shape(), (Shape{3, 2}));
  EXPECT_EQ(slice(x, 1, 1, 3).to_doubles(), (std::vector<double>{2, 3, 5, 6}));
  EXPECT_EQ(slice(x, -2, 1, 2).to_doubles(), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(slice(x, 0, 1, 1).shape(), (Shape{0, 3}));
  EXPECT_EQ(reshape(x, {3, 2}).raw(), x.raw());
  const Tensor view = x.view({3, 2}, {1, 3}, 0);
  EXPECT_TRUE(contiguous(view).is_contiguous());
  EXPECT_EQ(contiguous(view).to_doubles(), transpose(x).to_doubles());
  EXPECT_EQ(contiguous(x).raw(), x.raw());
}

TEST(Layout, BackwardMatchesFiniteDifferences) {
  const Tensor x = random_tensor({3, 5, 7}, 1);
  EXPECT_TRUE(testing::gradcheck([](const Tensors& in) { return reshape(in[0], {7, 15}); }, {x}));
  EXPECT_TRUE(testing::gradcheck([](const Tensors& in) { return transpose(in[0]); }, {x}));
  EXPECT_TRUE(testing::gradcheck([](const Tensors& in) { return transpose(in[0], 0, 2); }, {x}));
  EXPECT_TRUE(testing::gradcheck([](const Tensors& in) { return slice(in[0], 1, 1, 4); }, {x}));
  EXPECT_TRUE(testing::gradcheck([](const Tensors& in) { return slice(in[0], -1, 6, 7); }, {x}));
  const auto overlapping = [](const Tensors& in) {  // two slices add their gradients
    return reshape(slice(slice(in[0], 0, 0, 2), 0, 1, 2), {35});
  };
  EXPECT_TRUE(testing::gradcheck(overlapping, {x}));
}

TEST(Layout, NarrowTypesMatchDouble) {
  for (const Shape& shape : {Shape{1, 1}, Shape{127, 3}, Shape{2, 8193}}) {
    const Tensor x = random_tensor(shape, 2);
    const auto turn = [](const Tensors& in) { return transpose(in[0]); };
    testing::expect_like_double(turn, {x}, {.computed = 0}, {.computed = 0});
    const auto part = [](const Tensors& in) { return slice(in[0], 1, 0, 1); };
    testing::expect_like_double(part, {x}, {.computed = 0}, {.computed = 0});
    const auto flat = [](const Tensors& in) { return reshape(in[0], {in[0].numel()}); };
    testing::expect_like_double(flat, {x}, {.computed = 0}, {.computed = 0});
    const auto wide = [](const Tensors& in) {  // cast returns its input where it need not convert
      const DType dtype = in[0].dtype();
      return dtype == DType::bf16 || dtype == DType::f16 ? cast(in[0], DType::f32)
                                                         : reshape(in[0], in[0].shape());
    };
    testing::expect_like_double(wide, {x}, {.computed = 0}, {.computed = 0});
  }
}

TEST(Layout, CastRoundsOnce) {
  // Just above the midpoint of two bf16 values: through f32 it would fall on it and round down.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  const Tensor x = Tensor::from<double>({above, -above, 1e30, HUGE_VAL, NAN}, {5});
  const std::vector<double> y = cast(x, DType::bf16).to_doubles();
  EXPECT_EQ(y[0], 1.0 + 0x1p-7);
  EXPECT_EQ(y[1], -1.0 - 0x1p-7);
  EXPECT_EQ(cast(x, DType::f16).to_doubles()[2], HUGE_VAL);
  EXPECT_EQ(y[3], HUGE_VAL);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(cast(x, DType::f64).raw(), x.raw());
}

TEST(Layout, ContiguousGivesAStridedLeafItsGradient) {
  const Tensor base = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor columns = base.view({3, 2}, {1, 3}, 0);
  columns.set_requires_grad();
  const Tensor y = contiguous(columns);
  backward(y, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  backward(contiguous(columns), Tensor::from<float>({1, 1, 1, 1, 1, 1}, {3, 2}));
  EXPECT_EQ(columns.grad().to_doubles(), (std::vector<double>{2, 3, 4, 5, 6, 7}));
}

TEST(Layout, WrongInputsThrow) {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32);
  EXPECT_THROW(reshape(x, {4}), std::invalid_argument);
  EXPECT_THROW(reshape(x.view({3, 2}, {1, 3}, 0), {6}), std::invalid_argument);
  EXPECT_THROW(transpose(x, 0, 2), std::invalid_argument);
  EXPECT_THROW(transpose(x, -3, 0), std::invalid_argument);
  EXPECT_THROW(slice(x, 2, 0, 1), std::invalid_argument);
  EXPECT_THROW(slice(x, 1, 2, 1), std::invalid_argument);
  EXPECT_THROW(slice(x, 1, 0, 4), std::invalid_argument);
  EXPECT_THROW(cast(Tensor::zeros({2}, DType::i32), DType::f32), std::invalid_argument);
  EXPECT_THROW(cast(x, DType::i32), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
