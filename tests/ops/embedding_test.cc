#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/op_check.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

Tensor random_tokens(const Shape& shape, int64_t vocab) {
  std::mt19937 engine(7);
  std::vector<int32_t> tokens(static_cast<size_t>(shape.numel()));
  for (int32_t& t : tokens) {
    t = static_cast<int32_t>(engine() % static_cast<uint32_t>(vocab));
  }
  return Tensor::from(tokens, shape);
}

TEST(Embedding, HandComputed) {
  const Tensor tokens = Tensor::from<int32_t>({1, 0, 1, 1}, {2, 2});
  Tensor table = Tensor::from<float>({1, 2, 3, 4}, {2, 2}).set_requires_grad();
  Tensor positions = Tensor::from<float>({10, 20, 30, 40, 50, 60}, {3, 2}).set_requires_grad();
  const Tensor y = embedding(tokens, table, positions);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{13, 24, 31, 42, 13, 24, 33, 44}));
  backward(y, Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}));
  EXPECT_EQ(table.grad().to_doubles(), (std::vector<double>{3, 4, 13, 16}));
  EXPECT_EQ(positions.grad().to_doubles(), (std::vector<double>{6, 8, 10, 12, 0, 0}));
}

TEST(Embedding, BackwardMatchesFiniteDifferences) {
  for (const int64_t columns : {1, 7, 13}) {
    const Tensor tokens = random_tokens({3, 5}, 4);
    const auto f = [&](const Tensors& in) { return embedding(tokens, in[0], in[1]); };
    EXPECT_TRUE(
        testing::gradcheck(f, {random_tensor({4, columns}, 1), random_tensor({6, columns}, 2)}));
    const auto plain = [&](const Tensors& in) { return embedding(tokens, in[0]); };
    EXPECT_TRUE(testing::gradcheck(plain, {random_tensor({4, columns}, 3)}));
  }
}

TEST(Embedding, NarrowTypesMatchDouble) {
  const Tensor tokens = random_tokens({5, 127}, 31);
  const auto f = [&](const Tensors& in) { return embedding(tokens, in[0], in[1]); };
  // A token comes up about 20 times.
  testing::expect_like_double(f,
                              {random_tensor({31, 129}, 4), random_tensor({127, 129}, 5)},
                              {.computed = 1},
                              {.computed = 64});
}

TEST(Embedding, TheOutputMayBeWiderThanTheTable) {
  const Tensor tokens = Tensor::from<int32_t>({0}, {1, 1});
  const Tensor table = testing::as_dtype(Tensor::from<double>({1.0}, {1, 1}), DType::bf16);
  const Tensor positions = testing::as_dtype(Tensor::from<double>({0x1p-9}, {1, 1}), DType::bf16);
  EXPECT_EQ(embedding(tokens, table, positions, DType::f32).item(), 1.0 + 0x1p-9);
  EXPECT_EQ(embedding(tokens, table, positions).item(), 1.0);
}

TEST(Embedding, WrongInputsAreNamed) {
  const Tensor table = Tensor::zeros({3, 2}, DType::f32);
  const auto message = [&](const Tensor& tokens, const Tensor& positions = {}) {
    return testing::message_of<std::invalid_argument>([&] { embedding(tokens, table, positions); });
  };
  testing::expect_holds(
      message(Tensor::from<int32_t>({0, 3}, {2})), "embedding", "token 3", "place 1", "[0, 3)");
  testing::expect_holds(message(Tensor::from<int32_t>({-1}, {1})), "token -1");
  testing::expect_holds(message(Tensor::zeros({2}, DType::i64)), "i64");
  testing::expect_holds(
      message(Tensor::zeros({1, 4}, DType::i32), Tensor::zeros({3, 2}, DType::f32)),
      "positions",
      "[3, 2]",
      "[1, 4]");
}

TEST(Cases, FC50_GradientOfAFrequentTokenIsExact) {
  const Tensor tokens = Tensor::zeros({1000}, DType::i32);
  Tensor table = Tensor::zeros({2, 3}, DType::bf16).set_requires_grad();
  const Tensor ones = testing::as_dtype(
      Tensor::from<double>(std::vector<double>(3000, 1.0), {1000, 3}), DType::bf16);
  backward(embedding(tokens, table), ones);
  EXPECT_EQ(table.grad().to_doubles(), (std::vector<double>{1000, 1000, 1000, 0, 0, 0}));
}

TEST(Cases, FC104_RepeatedTokensGiveTheSameBitsOnAnyThreads) {
  const Tensor tokens = random_tokens({8, 256}, 3);
  const Tensor table = random_tensor({3, 65}, 6);
  const auto f = [&](const Tensors& in) { return embedding(tokens, in[0]); };
  testing::expect_like_double(f, {table}, {.computed = 0}, {.computed = 700});  // compares threads
}

}  // namespace
}  // namespace halftone
