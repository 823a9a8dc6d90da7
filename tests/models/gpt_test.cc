#include "models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/autograd.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "tests/support/close.h"

namespace halftone {
namespace {

using testing::all_close;
using testing::close;

const GptOptions kTiny{
    .vocab = 11, .context = 8, .layers = 2, .heads = 2, .width = 16, .has_bias = true};

LinearContext context_for(const std::string& recipe, const Tensor& counters) {
  return {parse_recipe(recipe), RandomSource{.seed = 3, .counters = counters}, "", {}};
}

LinearContext context_for(const std::string& recipe) {
  return context_for(recipe, Tensor::zeros({2}, DType::i64));
}

Tensor random_tokens(int64_t B, int64_t T, int64_t vocab, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(B * T));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(engine() % static_cast<uint32_t>(vocab));
  }
  return Tensor::from(tokens, {B, T});
}

const Parameter& find(Gpt& model, const std::string& path) {
  for (const Parameter& p : model.parameters().all()) {
    if (p.path == path) {
      return p;
    }
  }
  throw std::logic_error("no parameter " + path);
}

double deviation(const Parameter& p) {
  double square = 0.0;
  for (const double x : p.source.to_doubles()) {
    square += x * x;
  }
  return std::sqrt(square / static_cast<double>(p.shape.numel()));
}

// A loss with targets of its own, and its gradient in the model's buffers.
double loss_of(Gpt& model, const Tensor& tokens, const Tensor& targets, bool with_gradient) {
  std::optional<NoGrad> off;
  if (!with_gradient) {
    off.emplace();
  }
  const Tensor logits = model.forward(tokens, with_gradient);
  const CrossEntropy loss = cross_entropy(logits, targets, {.vocab = model.options().vocab});
  if (with_gradient) {
    model.parameters().begin_gradients();
    backward(loss.loss);
    model.parameters().finish_gradients();
  }
  return loss.loss.item();
}

TEST(Gpt, StartsAsNanoGptDoes) {
  GptOptions options{.vocab = 65, .context = 256, .layers = 6, .heads = 6, .width = 384};
  Gpt model(options, context_for("fp32"));
  // wte, wpe, and 6 blocks of 12 width^2 and two norms; ln_f.
  const int64_t w = options.width;
  EXPECT_EQ(model.parameters().num_elements(), 65 * w + 256 * w + 6 * (12 * w * w + 2 * w) + w);
  EXPECT_EQ(model.parameters().all().size(), 2u + 6u * 6u + 1u);
  // 1% is 5 standard errors of a deviation over 125,000 values.
  EXPECT_TRUE(close(deviation(find(model, "blocks.0.mlp.fc.weight")), 0.02, {.rtol = 0.01}));
  EXPECT_TRUE(close(deviation(find(model, "blocks.5.attn.qkv.weight")), 0.02, {.rtol = 0.01}));
  const double into_residual = 0.02 / std::sqrt(12.0);
  for (const char* path : {"blocks.2.attn.proj.weight", "blocks.3.mlp.proj.weight"}) {
    EXPECT_TRUE(close(deviation(find(model, path)), into_residual, {.rtol = 0.01})) << path;
  }
  EXPECT_TRUE(close(deviation(find(model, "wpe.weight")), 0.02, {.rtol = 0.01}));
  for (const double gamma : find(model, "ln_f.weight").source.to_doubles()) {
    ASSERT_EQ(gamma, 1.0);
  }
  // An untrained model knows nothing: its loss is that of a uniform guess.
  const Tensor tokens = random_tokens(2, 64, 65, 1);
  EXPECT_TRUE(close(
      loss_of(model, tokens, random_tokens(2, 64, 65, 2), false), std::log(65.0), {.atol = 0.2}));
}

TEST(Gpt, BiasesStartAtZeroAndCanBeLeftOut) {
  Gpt with(kTiny, context_for("fp32"));
  for (const char* path : {"blocks.0.attn.qkv.bias", "blocks.1.mlp.proj.bias", "ln_f.bias"}) {
    for (const double bias : find(with, path).source.to_doubles()) {
      ASSERT_EQ(bias, 0.0) << path;
    }
  }
  GptOptions options = kTiny;
  options.has_bias = false;
  Gpt without(options, context_for("fp32"));
  for (const Parameter& p : without.parameters().all()) {
    EXPECT_TRUE(p.path.ends_with(".weight")) << p.path;
  }
}

TEST(Gpt, InitialWeightsDoNotDependOnTheRecipe) {
  Gpt fp32(kTiny, context_for("fp32"));
  Gpt fp8(kTiny, context_for("fp8-block"));
  EXPECT_EQ(find(fp32, "wte.weight").source.to_doubles(),
            find(fp8, "wte.weight").source.to_doubles());
}

TEST(Gpt, LogitsDoNotSeeTheFuture) {
  Gpt model(kTiny, context_for("fp32"));
  const NoGrad off;
  const Tensor tokens = random_tokens(1, 8, 11, 4);
  const std::vector<double> before = model.forward(tokens, false).to_doubles();
  for (int64_t t = 0; t < 8; ++t) {
    Tensor changed = Tensor::from(
        std::vector<int32_t>(tokens.data<int32_t>(), tokens.data<int32_t>() + 8), {1, 8});
    changed.data<int32_t>()[t] = (changed.data<int32_t>()[t] + 1) % 11;
    const std::vector<double> after = model.forward(changed, false).to_doubles();
    const int64_t width = model.padded_vocab();
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + t * width, after.begin())) << t;
    EXPECT_FALSE(std::equal(
        before.begin() + t * width, before.begin() + (t + 1) * width, after.begin() + t * width))
        << t;
  }
}

TEST(Gpt, ShorterInputsGiveTheSameLogits) {
  Gpt model(kTiny, context_for("fp32"));
  const NoGrad off;
  const Tensor tokens = random_tokens(1, 8, 11, 4);
  const std::vector<double> whole = model.forward(tokens, false).to_doubles();
  const std::vector<double> part =
      model.forward(tokens.view({1, 5}, {8, 1}, 0).view({1, 5}), false).to_doubles();
  EXPECT_TRUE(all_close(part,
                        std::vector<double>(whole.begin(), whole.begin() + std::ssize(part)),
                        {.atol = 1e-6, .rtol = 1e-5}));
}

// Along a parameter's own gradient g, the loss must rise by |g|^2 per unit; along a random
// direction d by g.d. Differences of an FP32 loss of size 2.4 carry an error of about 5e-7, and
// steps change the loss by 0.02: 2% leaves room for the third derivative.
TEST(Gpt, GradientsMatchFiniteDifferences) {
  Gpt model(kTiny, context_for("fp32"));
  const Tensor tokens = random_tokens(3, 8, 11, 5);
  const Tensor targets = random_tokens(3, 8, 11, 6);
  // Away from the start, where some gradients are tiny: every parameter gets noise.
  std::mt19937 engine(7);
  std::normal_distribution<float> noise(0.0f, 0.2f);
  for (const Parameter& p : model.parameters().all()) {
    for (int64_t i = 0; i < p.shape.numel(); ++i) {
      p.source.data<float>()[i] += noise(engine);
    }
  }
  const auto refresh = [&] {
    for (LinearLayer* layer : model.linear_layers()) {
      layer->refresh();
    }
  };
  refresh();
  loss_of(model, tokens, targets, true);
  for (const Parameter& p : model.parameters().all()) {
    const std::vector<double> g = p.gradient.to_doubles();
    for (const bool along_gradient : {true, false}) {
      std::vector<double> d = g;
      if (!along_gradient) {
        for (size_t i = 0; i < d.size(); ++i) {
          d[i] = static_cast<int64_t>(i) < p.shape.numel() ? double{noise(engine)} : 0.0;
        }
      }
      double slope = 0.0;
      double square = 0.0;
      for (size_t i = 0; i < d.size(); ++i) {
        slope += g[i] * d[i];
        square += d[i] * d[i];
      }
      const double h = 0.01 / std::sqrt(square);
      const auto loss_at = [&](double step) {
        float* w = p.source.data<float>();
        const std::vector<float> saved(w, w + d.size());
        for (size_t i = 0; i < d.size(); ++i) {
          w[i] = static_cast<float>(w[i] + step * d[i]);
        }
        refresh();
        const double loss = loss_of(model, tokens, targets, false);
        std::copy(saved.begin(), saved.end(), w);
        return loss;
      };
      const double measured = (loss_at(h) - loss_at(-h)) / (2.0 * h);
      const double norm = std::sqrt(square);
      EXPECT_TRUE(close(measured / norm, slope / norm, {.atol = 2e-4, .rtol = 0.02}))
          << p.path << (along_gradient ? " along its gradient" : " along a random direction");
    }
  }
}

TEST(Gpt, PaddingOfTheVocabularyStaysZero) {
  Gpt model(kTiny, context_for("bf16"));
  EXPECT_EQ(model.padded_vocab(), 64);
  loss_of(model, random_tokens(2, 8, 11, 5), random_tokens(2, 8, 11, 6), true);
  const Parameter& wte = find(model, "wte.weight");
  EXPECT_EQ(wte.shape, (Shape{11, 16}));
  const std::vector<double> weights = wte.source.to_doubles();
  const std::vector<double> gradient = wte.gradient.to_doubles();
  ASSERT_EQ(gradient.size(), 64u * 16u);
  for (size_t i = 11 * 16; i < gradient.size(); ++i) {
    ASSERT_EQ(weights[i], 0.0);
    ASSERT_EQ(gradient[i], 0.0);
  }
}

// The lookup's gradient is added to the head's: freezing one path at a time, they sum to the whole.
TEST(Gpt, TiedEmbeddingGetsBothGradients) {
  Gpt model(kTiny, context_for("fp32"));
  const Tensor tokens = Tensor::from<int32_t>({1, 1, 1, 2, 2, 2, 2, 1}, {1, 8});
  const Tensor targets = Tensor::from<int32_t>({3, 3, 3, 3, 3, 3, 3, 3}, {1, 8});
  loss_of(model, tokens, targets, true);
  const std::vector<double> gradient = find(model, "wte.weight").gradient.to_doubles();
  const auto row_norm = [&](size_t row) {
    double square = 0.0;
    for (size_t i = row * 16; i < (row + 1) * 16; ++i) {
      square += gradient[i] * gradient[i];
    }
    return std::sqrt(square);
  };
  // Tokens that are read, the target, and one that is neither: only the head reaches that one.
  EXPECT_GT(row_norm(1), 5.0 * row_norm(7));
  EXPECT_GT(row_norm(2), 5.0 * row_norm(7));
  EXPECT_GT(row_norm(3), 5.0 * row_norm(7));
  EXPECT_GT(row_norm(7), 0.0);
}

struct TrainedBits {
  std::vector<double> gradients;
  std::vector<double> histories;
  double loss = 0.0;
};

// Two micro-batches with dropout, then the histories' turn.
TrainedBits train_once(const std::string& recipe, bool recompute) {
  GptOptions options = kTiny;
  options.dropout = 0.2f;
  options.recompute = recompute;
  const Tensor counters = Tensor::zeros({2}, DType::i64);
  Gpt model(options, context_for(recipe, counters));
  TrainedBits bits;
  model.parameters().begin_gradients();
  for (int64_t k = 0; k < 2; ++k) {
    counters.data<int64_t>()[1] = k;
    const Tensor logits = model.forward(random_tokens(2, 8, 11, 8), true);
    const CrossEntropy loss =
        cross_entropy(logits, random_tokens(2, 8, 11, 9), {.vocab = options.vocab});
    bits.loss += loss.loss.item();
    backward(loss.loss);
  }
  bits.gradients = model.parameters().buffers().gradients.to_doubles();
  for (LinearLayer* layer : model.linear_layers()) {
    layer->state().end_step();
    for (const AmaxHistory* history : layer->state().histories()) {
      const std::vector<double> amax = history->amax.to_doubles();
      bits.histories.insert(bits.histories.end(), amax.begin(), amax.end());
    }
  }
  return bits;
}

TEST(Gpt, RecomputationGivesTheSameBits) {
  for (const char* recipe : {"fp32",
                             "bf16",
                             "fp16",
                             "bf16,residual=fp32",
                             "fp8-delayed",
                             "fp8-block,round=stochastic"}) {
    const TrainedBits kept = train_once(recipe, false);
    const TrainedBits again = train_once(recipe, true);
    EXPECT_EQ(again.loss, kept.loss) << recipe;
    EXPECT_EQ(again.gradients, kept.gradients) << recipe;
    EXPECT_EQ(again.histories, kept.histories) << recipe;
    EXPECT_EQ(kept.histories.empty(), std::string(recipe) != "fp8-delayed") << recipe;
  }
}

TEST(Gpt, RecomputationKeepsLittle) {
  const auto peak = [](bool recompute) {
    Gpt model(
        {.vocab = 11, .context = 32, .layers = 8, .heads = 2, .width = 32, .recompute = recompute},
        context_for("bf16"));
    MemoryPool& pool = memory_pool({});
    pool.reset_peaks();
    loss_of(model, random_tokens(4, 32, 11, 8), random_tokens(4, 32, 11, 9), true);
    return pool.stats().by_category[static_cast<size_t>(MemoryCategory::activations)].peak_bytes;
  };
  // A block keeps some 20 tensors as large as the stream; recomputed, one.
  EXPECT_LT(3 * peak(true), peak(false));
}

TEST(Gpt, DropoutDependsOnTheMicroBatchAndTrainingAlone) {
  GptOptions options = kTiny;
  options.dropout = 0.5f;
  const Tensor counters = Tensor::zeros({2}, DType::i64);
  Gpt model(options, context_for("fp32", counters));
  const NoGrad off;
  const Tensor tokens = random_tokens(1, 8, 11, 4);
  const std::vector<double> evaluated = model.forward(tokens, false).to_doubles();
  const std::vector<double> first = model.forward(tokens, true).to_doubles();
  EXPECT_NE(first, evaluated);
  EXPECT_EQ(model.forward(tokens, true).to_doubles(), first);
  counters.data<int64_t>()[1] = 1;
  EXPECT_NE(model.forward(tokens, true).to_doubles(), first);
  EXPECT_EQ(model.forward(tokens, false).to_doubles(), evaluated);
}

TEST(Gpt, ResidualStreamCanBeWiderThanActivations) {
  const Tensor tokens = random_tokens(2, 8, 11, 4);
  const NoGrad off;
  Gpt exact(kTiny, context_for("fp32"));
  const std::vector<double> expected = exact.forward(tokens, false).to_doubles();
  const auto error = [&](const char* recipe) {
    Gpt model(kTiny, context_for(recipe));
    const Tensor logits = model.forward(tokens, false);
    EXPECT_EQ(logits.dtype(), DType::bf16);
    const std::vector<double> actual = logits.to_doubles();
    double square = 0.0;
    for (size_t i = 0; i < actual.size(); ++i) {
      square += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    }
    return std::sqrt(square);
  };
  EXPECT_LT(error("bf16,residual=fp32"), error("bf16"));
}

TEST(Gpt, ImpossibleSizesThrow) {
  const auto make = [](GptOptions options) { Gpt model(options, context_for("fp32")); };
  EXPECT_THROW(make({.layers = 0}), std::invalid_argument);
  EXPECT_THROW(make({.heads = 5, .width = 384}), std::invalid_argument);
  EXPECT_THROW(make({.dropout = 1.0f}), std::invalid_argument);
  Gpt model(kTiny, context_for("fp32"));
  EXPECT_THROW(model.forward(random_tokens(1, 9, 11, 1), false), std::invalid_argument);
  EXPECT_THROW(model.forward(Tensor::zeros({1, 4}, DType::f32), false), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
