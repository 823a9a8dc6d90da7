// cross_entropy and count_correct.
#include "ops/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include "core/parallel.h"
#include "ops/accuracy/accuracy.h"
#include "ops/mul/mul.h"
#include "tests/support/op_check.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

Tensor random_targets(int64_t tokens, int64_t vocab, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> targets(static_cast<size_t>(tokens));
  for (int32_t& t : targets) {
    const auto draw = static_cast<int64_t>(engine() % static_cast<uint64_t>(vocab + 1));
    t = draw == vocab ? kIgnoreTarget : static_cast<int32_t>(draw);
  }
  return Tensor::from(targets, {tokens});
}

// Sum of token losses of f64 logits, the plain way.
double reference_sum(const Tensor& logits, const Tensor& targets, int64_t vocab) {
  const std::vector<double> x = logits.to_doubles();
  const int64_t columns = logits.size(-1);
  double total = 0.0;
  for (int64_t n = 0; n < targets.numel(); ++n) {
    const int32_t t = targets.data<int32_t>()[n];
    if (t == kIgnoreTarget) {
      continue;
    }
    double sum = 0.0;
    for (int64_t c = 0; c < vocab; ++c) {
      sum += std::exp(x[static_cast<size_t>(n * columns + c)]);
    }
    total += std::log(sum) - x[static_cast<size_t>(n * columns + t)];
  }
  return total;
}

TEST(CrossEntropy, HandComputedLossAndGradient) {
  Tensor logits = Tensor::from<float>({0, 0, 0, 0}, {2, 2}).set_requires_grad();
  const Tensor targets = Tensor::from<int32_t>({1, kIgnoreTarget}, {2});
  const CrossEntropy r = cross_entropy(logits, targets);
  EXPECT_FLOAT_EQ(static_cast<float>(r.loss.item()), std::log(2.0f));
  EXPECT_EQ(r.count.item(), 1);
  backward(r.loss);
  EXPECT_EQ(logits.grad().to_doubles(), (std::vector<double>{0.5, -0.5, 0, 0}));
}

TEST(CrossEntropy, BackwardMatchesFiniteDifferences) {
  struct Case {
    int64_t tokens, columns, vocab;
  };
  for (const Case c : {Case{1, 1, 1}, Case{1, 3, 2}, Case{7, 13, 13}, Case{5, 130, 127}}) {
    const Tensor targets = random_targets(c.tokens, c.vocab, 5);
    const Tensor weight = Tensor::from<float>({0.25f}, {});
    for (const bool weighted : {false, true}) {
      const CrossEntropyOptions options{.vocab = c.vocab, .weight = weighted ? weight : Tensor()};
      const auto loss = [&](const Tensors& in) {
        return cross_entropy(in[0], targets, options).loss;
      };
      EXPECT_TRUE(testing::gradcheck(loss, {random_tensor({c.tokens, c.columns}, 6)}));
    }
  }
}

TEST(CrossEntropy, NarrowTypesMatchDouble) {
  for (const int64_t columns : {2, 127, 128, 129, 1000}) {
    const Tensor targets = random_targets(11, columns - 1, 7);
    const auto loss = [&](const Tensors& in) {
      return cross_entropy(in[0], targets, {.vocab = columns - 1}).loss;
    };
    // Arguments of exponentials of up to 16, 11 losses of up to 16 added.
    testing::expect_like_double(
        loss, {random_tensor({11, columns}, 8, 2.0)}, {.computed = 64}, {.computed = 64});
  }
}

// A long row is summed by chunks of 4096, each against its own maximum.
TEST(CrossEntropy, ChunksOfALongRowMeetWhereverTheMaximumIs) {
  constexpr int64_t kColumns = 2 * 4096 + 3;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const int64_t peak : {0, 4095, 4096, 8191, 8194}) {
    std::vector<double> x(kColumns, -kInfinity);
    x[static_cast<size_t>(peak)] = 3.0;
    const Tensor targets = Tensor::from<int32_t>({static_cast<int32_t>(peak)}, {1});
    const auto loss = [&] {
      return cross_entropy(testing::as_dtype(Tensor::from(x, {1, kColumns}), DType::f32), targets)
          .loss.item();
    };
    EXPECT_EQ(loss(), 0.0) << "all others masked, in whole chunks too";
    x[1] = x[4098] = x[8193] = 2.0;
    EXPECT_NEAR(loss(), std::log1p(3.0 / std::numbers::e), 1e-6);
    x[4097] = std::nan("");
    EXPECT_TRUE(std::isnan(loss()));
  }
}

TEST(CrossEntropy, WeightedMicroBatchesAddUpToTheWholeBatch) {
  const Tensor logits = random_tensor({12, 17}, 9);
  const Tensor targets = random_targets(12, 17, 10);
  Tensor whole = testing::leaf_of(logits);
  const CrossEntropy all = cross_entropy(whole, targets);
  backward(all.loss);
  const Tensor weight = Tensor::from<float>({1.0f / static_cast<float>(all.count.item())}, {});
  double loss = 0.0;
  std::vector<double> gradient;
  for (int64_t first = 0; first < 12; first += 4) {  // batches of different numbers of targets
    Tensor part = testing::leaf_of(logits.view({4, 17}, {17, 1}, first * 17));
    const CrossEntropy r = cross_entropy(part, targets.view({4}, {1}, first), {.weight = weight});
    loss += r.loss.item();
    backward(r.loss);
    const std::vector<double> g = part.grad().to_doubles();
    gradient.insert(gradient.end(), g.begin(), g.end());
  }
  EXPECT_NEAR(loss, all.loss.item(), 0x1p-24 * loss);  // the weight is rounded to FP32
  EXPECT_TRUE(
      testing::all_close(gradient, whole.grad().to_doubles(), {.atol = 1e-9, .rtol = 1e-7}));
}

TEST(CrossEntropy, PaddingColumnsCountForNothing) {
  for (const double padding : {-1e30, 50.0, std::nan("")}) {
    Tensor logits = Tensor::from<double>({1, 2, padding, 3, -1, padding}, {2, 3});
    Tensor tight = Tensor::from<double>({1, 2, 3, -1}, {2, 2}).set_requires_grad();
    logits.set_requires_grad();
    const Tensor targets = Tensor::from<int32_t>({0, 1}, {2});
    const CrossEntropy padded = cross_entropy(logits, targets, {.vocab = 2});
    const CrossEntropy plain = cross_entropy(tight, targets);
    EXPECT_EQ(padded.loss.item(), plain.loss.item());
    backward(padded.loss);
    backward(plain.loss);
    const std::vector<double> g = tight.grad().to_doubles();
    EXPECT_EQ(logits.grad().to_doubles(), (std::vector<double>{g[0], g[1], 0, g[2], g[3], 0}));
  }
}

TEST(CrossEntropy, WrongInputsAreNamed) {
  const Tensor logits = Tensor::zeros({2, 3}, DType::f32);
  const auto message = [&](std::vector<int32_t> targets, int64_t vocab = 0) {
    const auto n = static_cast<int64_t>(targets.size());
    return testing::message_of<std::invalid_argument>(
        [&] { cross_entropy(logits, Tensor::from(targets, {n}), {.vocab = vocab}); });
  };
  testing::expect_holds(message({0, 3}), "cross_entropy", "target 3", "token 1", "[0, 3)");
  testing::expect_holds(message({0, -1}), "target -1");
  testing::expect_holds(message({0, 2}, 2), "target 2", "[0, 2)");
  testing::expect_holds(message({0}), "targets", "[1]", "[2]");
  testing::expect_holds(message({0, 1}, 4), "vocab is 4");
  EXPECT_THROW(cross_entropy(logits, Tensor::zeros({2}, DType::i64)), std::invalid_argument);
  EXPECT_THROW(
      cross_entropy(
          logits, Tensor::zeros({2}, DType::i32), {.weight = Tensor::zeros({1}, DType::f32)}),
      std::invalid_argument);
}

TEST(CountCorrect, FirstOfEqualLogitsAndNaN) {
  const Tensor logits =
      Tensor::from<float>({1, 1, 0, 0, 5, 9, NAN, 0, 1, 7, 8, 9, 2, 3, 1}, {5, 3});
  const Tensor targets = Tensor::from<int32_t>({0, 1, 2, kIgnoreTarget, 1}, {5});
  EXPECT_EQ(count_correct(logits, targets).item(), 2);  // tokens 0 and 4
  EXPECT_EQ(count_correct(logits, Tensor::from<int32_t>({1, 2, 2, 2, 1}, {5})).item(), 3);
  EXPECT_EQ(count_correct(logits, Tensor::from<int32_t>({0, 1, 0, 1, 1}, {5}), 2).item(), 4);
  EXPECT_THROW(count_correct(logits, Tensor::zeros({4}, DType::i32)), std::invalid_argument);
}

TEST(Cases, FC23_ScaledLossIsFp32) {
  // Two classes e^2 - 1 apart: the loss is 2 (to the rounding of the logit to FP16).
  Tensor logits =
      testing::as_dtype(Tensor::from<double>({std::log(std::expm1(2.0)), 0.0}, {1, 2}), DType::f16);
  logits.set_requires_grad();
  const CrossEntropy r = cross_entropy(logits, Tensor::from<int32_t>({1}, {1}));
  EXPECT_EQ(r.loss.dtype(), DType::f32);
  const Tensor scaled = mul(r.loss, Tensor::from<float>({65536.0f}, {}));
  EXPECT_EQ(scaled.dtype(), DType::f32);
  EXPECT_NEAR(scaled.item(), 131072.0, 131072.0 * 0x1p-11);
  backward(scaled);
  EXPECT_TRUE(std::isfinite(logits.grad().to_doubles()[0]));
}

TEST(Cases, FC44_LossOfNarrowLogitsIsNotQuantized) {
  const Tensor logits = testing::as_dtype(random_tensor({8, 100}, 11, 3.0), DType::bf16);
  const Tensor targets = random_targets(8, 100, 12);
  const CrossEntropy r = cross_entropy(logits, targets);
  const double expected = reference_sum(logits, targets, 100) / r.count.item();
  EXPECT_NEAR(r.loss.item(), expected, 1e-6 * expected);

  const Tensor uniform = Tensor::zeros({20 * 1025, 14749}, DType::f16);
  const CrossEntropy many = cross_entropy(uniform, Tensor::zeros({20 * 1025}, DType::i32));
  EXPECT_NEAR(many.loss.item(), 9.598930, 1e-6 * 9.6);
  EXPECT_NEAR(many.sum.item(), 196778.0, 1.0);
}

TEST(Cases, FC45_AllTargetsIgnored) {
  const Tensor targets = Tensor::from(std::vector<int32_t>(5, kIgnoreTarget), {5});
  for (const bool weighted : {false, true}) {
    Tensor logits = Tensor::from<float>(std::vector<float>(20, NAN), {5, 4}).set_requires_grad();
    const Tensor weight = Tensor::from<float>({INFINITY}, {});  // 1 / 0 targets
    const CrossEntropy r = cross_entropy(logits, targets, {.weight = weighted ? weight : Tensor()});
    EXPECT_EQ(r.loss.item(), 0.0);
    EXPECT_EQ(r.sum.item(), 0.0);
    EXPECT_EQ(r.count.item(), 0);
    backward(r.loss);
    EXPECT_EQ(logits.grad().to_doubles(), std::vector<double>(20, 0.0));
  }
}

}  // namespace
}  // namespace halftone
