#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/attention/online_attention.h"
#include "tests/support/op_check.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::random_tensor;
using testing::Tensors;

struct Setting {
  int64_t batch, length, heads, head_size;
  bool causal;
  Shape shape() const { return {batch, length, 3 * heads * head_size}; }
};

GemmPrecision precision_of(DType dtype) {
  GemmPrecision p;
  p.a.format = p.b.format = dtype == DType::f64 ? kFp32 : format_of(dtype);
  return p;
}

Dropout make_dropout(float p) {
  return {p, {11, Tensor::from<int64_t>({2, 0}, {2})}, "blocks.0.attn.dropout"};
}

testing::TensorFunction attention_of(int64_t heads, bool causal, float p = 0.0f) {
  return [=](const Tensors& in) {
    return attention(in[0],
                     {.heads = heads,
                      .causal = causal,
                      .precision = precision_of(in[0].dtype()),
                      .dropout = make_dropout(p),
                      .training = true});
  };
}

// Attention of f64 qkv, the plain way.
std::vector<double> reference(const Tensor& qkv, const Setting& s) {
  const std::vector<double> x = qkv.to_doubles();
  const int64_t columns = s.heads * s.head_size;
  std::vector<double> y(static_cast<size_t>(s.batch * s.length * columns), 0.0);
  const auto at = [&](int64_t b, int64_t t, int part, int64_t h, int64_t c) {
    return x[static_cast<size_t>((b * s.length + t) * 3 * columns + part * columns +
                                 h * s.head_size + c)];
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.length; ++i) {
        const int64_t visible = s.causal ? i + 1 : s.length;
        std::vector<double> p(static_cast<size_t>(visible), 0.0);
        double sum = 0.0;
        for (int64_t j = 0; j < visible; ++j) {
          double score = 0.0;
          for (int64_t c = 0; c < s.head_size; ++c) {
            score += at(b, i, 0, h, c) * at(b, j, 1, h, c);
          }
          sum += p[static_cast<size_t>(j)] =
              std::exp(score / std::sqrt(static_cast<double>(s.head_size)));
        }
        for (int64_t j = 0; j < visible; ++j) {
          for (int64_t c = 0; c < s.head_size; ++c) {
            y[static_cast<size_t>((b * s.length + i) * columns + h * s.head_size + c)] +=
                p[static_cast<size_t>(j)] / sum * at(b, j, 2, h, c);
          }
        }
      }
    }
  }
  return y;
}

const Setting kSettings[] = {{1, 1, 1, 1, true},
                             {2, 7, 3, 5, true},
                             {2, 7, 3, 5, false},
                             {1, 65, 2, 8, true},
                             {1, 127, 1, 16, true},
                             {1, 128, 1, 16, false},
                             {1, 129, 2, 4, true}};

TEST(Attention, MatchesThePlainFormula) {
  for (const Setting& s : kSettings) {
    const Tensor qkv = random_tensor(s.shape(), 1);
    EXPECT_TRUE(testing::all_close(attention_of(s.heads, s.causal)({qkv}).to_doubles(),
                                   reference(qkv, s),
                                   {.atol = 1e-13, .rtol = 1e-12}));
  }
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
  for (const float p : {0.0f, 0.3f}) {
    for (const Setting& s : {Setting{1, 2, 1, 1, true},
                             Setting{2, 5, 2, 3, true},
                             Setting{1, 7, 3, 2, false},
                             Setting{1, 17, 1, 1, true}}) {
      EXPECT_TRUE(
          testing::gradcheck(attention_of(s.heads, s.causal, p), {random_tensor(s.shape(), 2)}));
    }
  }
}

TEST(Attention, NarrowTypesMatchDouble) {
  for (const Setting& s : kSettings) {
    if (s.length == 1) {
      continue;  // q and k have no gradient but rounding noise
    }
    // Outputs are means of v (up to 4.5): rounding P and the sum of p move them by u of it. In the
    // backward pass P, dS (twice) and the sums over at most 129 rows do, of terms up to about 20.
    testing::expect_like_double(attention_of(s.heads, s.causal),
                                {random_tensor(s.shape(), 3)},
                                {.computed = 64, .stored = 2, .magnitude = 4.5},
                                {.computed = 256, .stored = 4, .magnitude = 20});
  }
}

TEST(Attention, DropoutIsRedrawnInBackward) {
  testing::expect_like_double(attention_of(2, true, 0.25f),
                              {random_tensor({2, 33, 24}, 4)},
                              {.computed = 64, .stored = 3, .magnitude = 6},
                              {.computed = 256, .stored = 5, .magnitude = 30});
  const Tensor qkv = random_tensor({1, 9, 6}, 5);
  AttentionOptions options{.heads = 1, .dropout = make_dropout(0.5f), .training = false};
  const std::vector<double> evaluation = attention(qkv, options).to_doubles();
  options.training = true;
  EXPECT_NE(attention(qkv, options).to_doubles(), evaluation);
  options.dropout.p = 0.0f;
  EXPECT_EQ(attention(qkv, options).to_doubles(), evaluation);
}

TEST(Attention, TheFutureChangesNothing) {
  Tensor qkv = testing::as_dtype(random_tensor({1, 8, 12}, 6), DType::f32);
  const std::vector<double> before = attention_of(2, true)({qkv}).to_doubles();
  std::fill(qkv.data<float>() + 7 * 12, qkv.data<float>() + 8 * 12, 3.0f);
  const std::vector<double> after = attention_of(2, true)({qkv}).to_doubles();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 7 * 4, after.begin()));
  EXPECT_NE(before, after);
}

TEST(Attention, WrongInputsAreNamed) {
  const auto message = [](const Tensor& qkv, const AttentionOptions& options) {
    return testing::message_of<std::invalid_argument>([&] { attention(qkv, options); });
  };
  const Tensor qkv = Tensor::zeros({1, 4, 18}, DType::f32);
  testing::expect_holds(message(qkv, {.heads = 4}), "attention", "[1, 4, 18]", "4 heads");
  testing::expect_holds(message(qkv, {.heads = 0}), "0 heads");
  testing::expect_holds(message(Tensor::zeros({1, 4, 0}, DType::f32), {.heads = 1}), "[1, 4, 0]");
  testing::expect_holds(
      message(qkv, {.heads = 3, .precision = precision_of(DType::bf16)}), "f32", "bf16");
  AttentionOptions forced;
  forced.heads = 3;
  forced.gemm_kernel = "emulated";  // takes no fp32 sums
  forced.path = "blocks.0.attn";
  testing::expect_holds(message(qkv, forced), "attention blocks.0.attn: gemm: kernel 'emulated'");
  EXPECT_THROW(attention(Tensor::zeros({4, 18}, DType::f32), {.heads = 3}), std::invalid_argument);
}

TEST(OnlineAttention, AgreesWithOpByOp) {
  for (const Setting& s : kSettings) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const Tensor qkv = testing::as_dtype(random_tensor(s.shape(), 7), dtype);
      const std::vector<double> expected = attention_of(s.heads, s.causal)({qkv}).to_doubles();
      // Both round P (one before, one after normalising) and the result: means of v, up to 4.5. In
      // the compute type: scores (up to 20) and their exponentials, sums, and one rescaling a tile.
      const DType compute = dtype == DType::f64 ? DType::f64 : DType::f32;
      const double u = testing::unit_roundoff(dtype);
      const testing::Tolerance allowed{.atol = 4.5 * (2 * u + 64 * testing::unit_roundoff(compute)),
                                       .rtol = 2 * u};
      for (const int64_t tile : {1, 32, 64, 128}) {
        const OnlineAttention online = online_attention(qkv, s.heads, s.causal, tile);
        EXPECT_TRUE(testing::all_close(online.y.to_doubles(), expected, allowed))
            << dtype << ", tiles of " << tile;
      }
    }
  }
}

TEST(OnlineAttention, LogSumExpOfOneKeyIsItsScore) {
  const Tensor qkv = Tensor::from<double>({2, 3, 5}, {1, 1, 3});
  const OnlineAttention online = online_attention(qkv, 1, true);
  EXPECT_EQ(online.log_sum_exp.item(), 6.0);
  EXPECT_EQ(online.y.item(), 5.0);
  EXPECT_THROW(online_attention(qkv, 1, true, 0), std::invalid_argument);
}

TEST(Cases, FC41_ScoresStayFp32UntilAfterSoftmax) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const int64_t d = 128;
    Tensor qkv = Tensor::from<double>(std::vector<double>(static_cast<size_t>(4 * 3 * d), 256.0),
                                      {1, 4, 3 * d});
    for (int64_t t = 0; t < 4; ++t) {
      std::fill_n(qkv.data<double>() + t * 3 * d + 2 * d, d, static_cast<double>(t));
    }
    const testing::OpResult r =
        testing::run_op(attention_of(1, false), {qkv}, random_tensor({1, 4, d}, 8), dtype);
    for (const double y : r[0]) {
      EXPECT_EQ(y, 1.5) << dtype;  // the mean of 0, 1, 2, 3: uniform
    }
    for (const double g : r[1]) {
      EXPECT_TRUE(std::isfinite(g)) << dtype;
    }
  }
}

TEST(Cases, FC38_AttentionRowWithoutVisibleScoreGivesZeros) {
  Tensor qkv = testing::as_dtype(random_tensor({1, 3, 3}, 9), DType::f32);
  float* x = qkv.data<float>();
  x[0] = 1.0f;  // query 0 sees key 0 alone, whose score is -infinity
  x[1] = -INFINITY;
  const std::vector<double> y = attention_of(1, true)({qkv}).to_doubles();
  EXPECT_EQ(y[0], 0.0);
  EXPECT_EQ(online_attention(qkv, 1, true).y.to_doubles()[0], 0.0);
}

}  // namespace
}  // namespace halftone
