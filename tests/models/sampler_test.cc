#include "models/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace halftone {
namespace {

const std::vector<double> kLogits{0.0, std::log(2.0), std::log(5.0), std::log(2.0)};  // 1:2:5:2

TEST(PickToken, CutsTheUnitIntervalByProbability) {
  // From the most likely on: token 2 up to 0.5, 1 up to 0.7, 3 up to 0.9, then 0.
  const SamplerOptions options;
  EXPECT_EQ(pick_token(kLogits, options, 0.0), 2);
  EXPECT_EQ(pick_token(kLogits, options, 0.49), 2);
  EXPECT_EQ(pick_token(kLogits, options, 0.51), 1);
  EXPECT_EQ(pick_token(kLogits, options, 0.69), 1);
  EXPECT_EQ(pick_token(kLogits, options, 0.71), 3);
  EXPECT_EQ(pick_token(kLogits, options, 0.91), 0);
  EXPECT_EQ(pick_token(kLogits, options, 1.0), 0);
}

TEST(PickToken, TopKKeepsTheLargest) {
  EXPECT_EQ(pick_token(kLogits, {.top_k = 1}, 0.99), 2);
  EXPECT_EQ(pick_token(kLogits, {.top_k = 2}, 0.99), 1);  // of equals the smaller token
  EXPECT_EQ(pick_token(kLogits, {.top_k = 2}, 5.0 / 7.0 - 0.01), 2);
  EXPECT_EQ(pick_token(kLogits, {.top_k = 9}, 0.99), 0);
}

TEST(PickToken, TemperatureSharpens) {
  EXPECT_EQ(pick_token(kLogits, {.temperature = 0.0}, 0.99), 2);
  // Squared: 1:4:25:4.
  EXPECT_EQ(pick_token(kLogits, {.temperature = 0.5}, 25.0 / 34.0 - 0.01), 2);
  EXPECT_EQ(pick_token(kLogits, {.temperature = 0.5}, 25.0 / 34.0 + 0.01), 1);
  // The coldest of temperatures underflows every other token's probability to zero.
  EXPECT_EQ(pick_token(kLogits, {.temperature = 1e-300}, 1.0), 2);
}

TEST(PickToken, BrokenLogitsThrow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(pick_token(std::vector{0.0, nan}, {}, 0.5), std::invalid_argument);
  EXPECT_THROW(pick_token({}, {}, 0.5), std::invalid_argument);
}

class SamplerTest : public ::testing::Test {
 protected:
  Gpt model_{{.vocab = 11, .context = 8, .layers = 1, .heads = 2, .width = 16},
             {parse_recipe("fp32"),
              RandomSource{.seed = 3, .counters = Tensor::zeros({2}, DType::i64)},
              "",
              {}}};

  std::vector<int32_t> write(const std::vector<int32_t>& prompt, const SamplerOptions& options) {
    Sampler sampler(model_, prompt, options);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 20; ++i) {  // beyond the context
      tokens.push_back(sampler.next());
    }
    return tokens;
  }
};

TEST_F(SamplerTest, SameSeedSameText) {
  const std::vector<int32_t> text = write({1, 2}, {.seed = 5});
  EXPECT_EQ(write({1, 2}, {.seed = 5}), text);
  EXPECT_NE(write({1, 2}, {.seed = 6}), text);
}

// The model starts close to uniform, so that padding columns of the head (logit 0) would be as
// likely as any.
TEST_F(SamplerTest, PaddingOfTheVocabularyIsNeverDrawn) {
  EXPECT_EQ(model_.padded_vocab(), 64);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const int32_t token : write({1}, {.seed = seed})) {
      ASSERT_LT(token, 11);
    }
  }
}

TEST_F(SamplerTest, ColdSamplerTakesTheLargestLogit) {
  const NoGrad off;
  const std::vector<double> logits =
      model_.next_logits(Tensor::from<int32_t>({4, 7}, {1, 2})).to_doubles();
  const auto largest = std::max_element(logits.begin(), logits.begin() + 11) - logits.begin();
  EXPECT_EQ(Sampler(model_, {4, 7}, {.temperature = 0.0}).next(), largest);
  const std::vector<double> all =
      model_.forward(Tensor::from<int32_t>({4, 7}, {1, 2}), false).to_doubles();
  EXPECT_EQ(std::vector<double>(all.begin() + 64, all.end()), logits);
}

TEST_F(SamplerTest, WrongOptionsThrow) {
  EXPECT_THROW(Sampler(model_, {}, {}), std::invalid_argument);
  EXPECT_THROW(Sampler(model_, {11}, {}), std::invalid_argument);
  EXPECT_THROW(Sampler(model_, {1}, {.temperature = -1.0}), std::invalid_argument);
  EXPECT_THROW(Sampler(model_, {1}, {.top_k = -1}), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
