#include "models/recompute.h"

#include <gtest/gtest.h>

#include "core/autograd.h"
#include "core/dispatch.h"
#include "core/recipe.h"
#include "ops/add/add.h"
#include "ops/dropout/dropout.h"
#include "ops/linear/linear.h"

namespace halftone {
namespace {

constexpr int64_t kWidth = 32;

Tensor ramp(const Shape& shape, double step) {
  const Tensor t = Tensor::empty(shape, DType::bf16);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<BFloat16>()[i] =
        narrow<BFloat16>(static_cast<float>(step * static_cast<double>(i % 37 - 18)));
  }
  return t;
}

struct Gradients {
  std::vector<double> y, dx, dw;
};

// Two segments in a row, each using its input twice, behind a node that is not a leaf.
Gradients run(bool recompute) {
  const LinearPrecision precision = resolve_linear(parse_recipe("bf16"), "fc", false);
  const Dropout drop{
      .p = 0.25f, .random = {5, Tensor::zeros({2}, DType::i64)}, .purpose = "dropout"};
  Tensor x = ramp({8, kWidth}, 0.125);
  Tensor w = ramp({kWidth, kWidth}, 0.01);
  x.set_requires_grad();
  w.set_requires_grad();
  const auto segment = [&](const Tensor& in) {
    const Tensor h = linear(in, w, {}, precision, nullptr, Activation::gelu);
    return add(in, dropout(h, drop, true));
  };
  Tensor y = add(x, x);
  for (int i = 0; i < 2; ++i) {
    y = recompute ? recomputed(y, segment) : segment(y);
  }
  const Gradients result{.y = y.to_doubles(), .dx = {}, .dw = {}};
  backward(y, ramp(y.shape(), 0.03));
  return {result.y, x.grad().to_doubles(), w.grad().to_doubles()};
}

TEST(Recompute, GradientsHaveTheSameBits) {
  const Gradients kept = run(false);
  const Gradients again = run(true);
  EXPECT_EQ(again.y, kept.y);
  EXPECT_EQ(again.dx, kept.dx);
  EXPECT_EQ(again.dw, kept.dw);
}

TEST(Recompute, GradientAddsToWhatOtherUsesWrote) {
  Tensor x = Tensor::from<float>({2.0f}, {1});
  x.set_requires_grad();
  const Tensor h = add(x, x);
  const auto triple = [](const Tensor& in) { return add(in, add(in, in)); };
  backward(add(recomputed(h, triple), h), Tensor::from<float>({1.0f}, {1}));
  EXPECT_EQ(x.grad().item(), 8.0);
}

TEST(Recompute, RunsOnceWithoutRecording) {
  const NoGrad off;
  int calls = 0;
  const Tensor y = recomputed(Tensor::from<float>({2.0f}, {1}), [&](const Tensor& in) {
    ++calls;
    return add(in, in);
  });
  EXPECT_EQ(y.item(), 4.0);
  EXPECT_EQ(calls, 1);
}

TEST(Recompute, InputWithoutGradientThrows) {
  const auto same = [](const Tensor& in) { return in; };
  EXPECT_THROW(recomputed(Tensor::from<float>({2.0f}, {1}), same), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
