// Every op on a batch of nothing: outputs of the right shape, gradients of parameters exactly zero.
#include <gtest/gtest.h>

#include "core/autograd.h"
#include "ops/accuracy/accuracy.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
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
#include "ops/transpose/transpose.h"

namespace halftone {
namespace {

Tensor leaf(const Shape& shape) { return Tensor::zeros(shape, DType::f32).set_requires_grad(); }

void expect_zero(const Tensor& gradient) {
  for (const double g : gradient.to_doubles()) {
    EXPECT_EQ(g, 0.0);
  }
}

TEST(Cases, FC58_OpsTakeABatchOfNothing) {
  const Tensor x = leaf({0, 6});
  const Tensor vector = leaf({6});
  const Dropout half{0.5f, {1, Tensor::zeros({2}, DType::i64)}, "dropout"};
  for (const Tensor& y : {relu(x),
                          gelu(x),
                          gelu_exact(x),
                          silu(x),
                          softmax(x),
                          add(x, vector),
                          mul(x, vector),
                          dropout(x, half, true),
                          layernorm(x, vector, vector),
                          rmsnorm(x, vector),
                          residual_layernorm(x, x, vector, vector).y,
                          residual_add(x, x),
                          cast(cast(x, DType::bf16), DType::f32),
                          reshape(x, {0, 6}),
                          slice(x, 0, 0, 0)}) {
    EXPECT_EQ(y.shape(), (Shape{0, 6}));
    backward(y, Tensor::zeros({0, 6}, DType::f32));
  }
  EXPECT_EQ(transpose(x).shape(), (Shape{6, 0}));
  expect_zero(vector.grad());

  for (const Over over : {Over::all, Over::leading}) {
    const Tensor total = sum(x, over);
    expect_zero(total);
    backward(total, Tensor::zeros(total.shape(), DType::f32));
  }
}

TEST(Cases, FC58_ModelOpsTakeNoTokens) {
  const Tensor table = leaf({3, 6});
  const Tensor positions = leaf({4, 6});
  const Tensor none = Tensor::zeros({2, 0}, DType::i32);
  const Tensor y = embedding(none, table, positions);
  EXPECT_EQ(y.shape(), (Shape{2, 0, 6}));
  backward(y, Tensor::zeros({2, 0, 6}, DType::f32));
  expect_zero(table.grad());
  expect_zero(positions.grad());

  for (const Shape& shape : {Shape{0, 4, 6}, Shape{2, 0, 6}}) {
    const Tensor attended = attention(leaf(shape), {.heads = 2});
    EXPECT_EQ(attended.shape(), (Shape{shape[0], shape[1], 2}));
    backward(attended, Tensor::zeros(attended.shape(), DType::f32));
  }

  const Tensor logits = leaf({0, 6});
  const Tensor targets = Tensor::zeros({0}, DType::i32);
  const CrossEntropy loss = cross_entropy(logits, targets);
  EXPECT_EQ(loss.loss.item(), 0.0);
  EXPECT_EQ(loss.count.item(), 0);
  EXPECT_EQ(count_correct(logits, targets).item(), 0);
  backward(loss.loss);
}

}  // namespace
}  // namespace halftone
