// add and mul: how shapes meet, and gradients summed over what was repeated.
#include "ops/broadcast/broadcast.h"

#include <gtest/gtest.h>

#include "ops/add/add.h"
#include "ops/mul/mul.h"
#include "tests/support/op_check.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

struct Pair {
  Shape a, b;
};
const Pair kPairs[] = {{{1}, {1}},
                       {{}, {3}},
                       {{7, 13}, {7, 13}},
                       {{7, 13}, {13}},
                       {{7, 13}, {7, 1}},
                       {{13}, {7, 13}},
                       {{5, 1}, {1, 7}},
                       {{2, 3, 4}, {3, 1}},
                       {{2, 3, 4}, {}},
                       {{2, 1, 4}, {3, 1}},
                       {{4, 1, 3, 1}, {2, 1, 5}},
                       {{129, 127}, {127}}};

Tensor run_add(const Tensors& in) { return add(in[0], in[1]); }
Tensor run_mul(const Tensors& in) { return mul(in[0], in[1]); }

TEST(Broadcast, HandComputed) {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor row = Tensor::from<float>({10, 20, 30}, {3});
  const Tensor column = Tensor::from<float>({2, -1}, {2, 1});
  EXPECT_EQ(add(a, row).to_doubles(), (std::vector<double>{11, 22, 33, 14, 25, 36}));
  EXPECT_EQ(mul(column, a).to_doubles(), (std::vector<double>{2, 4, 6, -4, -5, -6}));
  EXPECT_EQ(mul(column, row).shape(), (Shape{2, 3}));
  EXPECT_EQ(add(a, a).to_doubles(), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(add(Tensor::zeros({0, 3}, DType::f32), row).numel(), 0);
}

TEST(Broadcast, BackwardMatchesFiniteDifferences) {
  for (const Pair& p : kPairs) {
    if (Shape(p.a).numel() > 200) {
      continue;
    }
    const Tensors inputs{random_tensor(p.a, 1), random_tensor(p.b, 2)};
    EXPECT_TRUE(testing::gradcheck(run_add, inputs)) << p.a << " " << p.b;
    EXPECT_TRUE(testing::gradcheck(run_mul, inputs)) << p.a << " " << p.b;
  }
  const auto square = [](const Tensors& in) { return mul(in[0], in[0]); };
  EXPECT_TRUE(testing::gradcheck(square, {random_tensor({7}, 3)}));
}

TEST(Broadcast, NarrowTypesMatchDouble) {
  for (const Pair& p : kPairs) {
    const Tensors inputs{random_tensor(p.a, 4), random_tensor(p.b, 5)};
    // Sums of up to 127 terms through trees of depth 9, and one of 16383 for a scalar.
    testing::expect_like_double(run_add, inputs, {.computed = 1}, {.computed = 64});
    testing::expect_like_double(run_mul, inputs, {.computed = 1}, {.computed = 64});
  }
}

TEST(Broadcast, WrongShapesThrow) {
  const Tensor a = Tensor::zeros({2, 3}, DType::f32);
  const std::string message = testing::message_of<std::invalid_argument>([&] {
    add(a, Tensor::zeros({2, 4}, DType::f32));
  });
  testing::expect_holds(message, "add", "[2, 3]", "[2, 4]", "3 against 4", "axis 1");
  EXPECT_THROW(mul(a, Tensor::zeros({3}, DType::bf16)), std::invalid_argument);
  EXPECT_THROW(mul(a, Tensor::zeros({3}, DType::i32)), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
