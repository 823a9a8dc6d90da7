#include "models/text_task.h"

#include <gtest/gtest.h>

#include "core/autograd.h"
#include "tests/support/close.h"
#include "tests/support/devices.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::close;
using testing::expect_holds;
using testing::message_of;

const GptOptions kTiny{.vocab = 11, .context = 8, .layers = 1, .heads = 2, .width = 16};

// The counters of a step.
RandomSource random_at(int64_t iteration, int64_t micro_batch, Device device = {}) {
  const Tensor counters = Tensor::from<int64_t>({iteration, micro_batch}, {2});
  return {.seed = 3, .counters = to_device(counters, device)};
}

LinearContext fp32_context() { return {parse_recipe("fp32"), random_at(0, 0), "", {}}; }

BatchPlan plan_of(int64_t batch) { return {.batch = batch, .random = random_at(0, 0)}; }

TokenDataset dataset(int64_t train, int64_t val, int64_t vocab = 11) {
  const auto make = [](int64_t n) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back(static_cast<int32_t>(i * i * 3 % 11));
    }
    return tokens;
  };
  TokenDataset data;
  data.source = "tokens.u16";
  data.train = make(train);
  data.val = make(val);
  data.vocabulary = Vocabulary::ids(vocab);
  return data;
}

// The loss of predicting tokens[first + 1 ...] from `length` tokens.
double window_loss(Gpt& model, const std::vector<int32_t>& tokens, int64_t first, int64_t length) {
  const NoGrad off;
  const auto part = [&](int64_t from) {
    return Tensor::from(std::vector<int32_t>(tokens.begin() + from, tokens.begin() + from + length),
                        {1, length});
  };
  const Tensor logits = model.forward(part(first), false);
  return cross_entropy(logits, part(first + 1), {.vocab = 11}).sum.item();
}

TEST(TextTask, EvaluationCountsEveryTokenOnce) {
  Gpt model(kTiny, fp32_context());
  const TokenDataset data = dataset(40, 30);  // windows of 8, 8, 8 and 5 tokens
  TextTask task(model, data, plan_of(2));
  const double sum = window_loss(model, data.val, 0, 8) + window_loss(model, data.val, 8, 8) +
                     window_loss(model, data.val, 16, 8) + window_loss(model, data.val, 24, 5);
  const Evaluation evaluation = task.evaluate();
  EXPECT_TRUE(close(evaluation.loss, sum / 29.0, {.rtol = 1e-5}));
  EXPECT_FALSE(evaluation.accuracy.has_value());
}

TEST(TextTask, RowsDependOnTheirPlaceInTheRunAlone) {
  Gpt model(kTiny, fp32_context());
  const TokenDataset data = dataset(400, 30);
  TextTask task(model, data, plan_of(5));
  TextTask other(model, data, plan_of(5));
  const std::vector<int64_t> rows = task.rows({.iteration = 7, .index = 1, .number = 15});
  task.rows({.iteration = 8, .index = 0, .number = 16});
  EXPECT_EQ(other.rows({.iteration = 7, .index = 1, .number = 15}), rows);
  EXPECT_EQ(rows.size(), 5u);
  EXPECT_EQ(task.units({}), 40);
}

TEST(TextTask, LossIsThatOfTheRows) {
  Gpt model(kTiny, fp32_context());
  const TokenDataset data = dataset(400, 30);
  TextTask task(model, data, {.batch = 2, .random = random_at(3, 0)});
  const MicroBatch at{.iteration = 3, .index = 0, .number = 3};
  double sum = 0.0;
  for (const int64_t first : task.rows(at)) {
    sum += window_loss(model, data.train, first, 8);
  }
  task.prepare(at);
  const CrossEntropy loss = task.training_loss(at, Tensor::from<float>({0.5f}, {}));
  EXPECT_TRUE(close(loss.sum.item(), sum, {.rtol = 1e-5}));
  EXPECT_TRUE(close(loss.loss.item(), 0.5 * sum, {.rtol = 1e-5}));
  EXPECT_EQ(loss.count.data<int32_t>()[0], 16);
}

// A corpus a byte too large for the device, and the same one within its limit.
void expect_sent_like_resident(Device device) {
  const RandomSource random = random_at(3, 0, device);
  Gpt model(kTiny, {parse_recipe("fp32"), random, "", device});
  const TokenDataset data = dataset(400, 30);
  BatchPlan plan{.batch = 2, .grad_accum = 3, .random = random, .resident_bytes = 430 * 4};
  TextTask whole(model, data, plan);
  --plan.resident_bytes;
  TextTask sent(model, data, plan);
  const Tensor weight = to_device(Tensor::from<float>({1.0f}, {}), device);
  const auto loss_sum = [&](TextTask& task, const MicroBatch& at) {
    return task.training_loss(at, weight).sum.to_doubles()[0];
  };
  for (int64_t k = 0; k < 3; ++k) {
    sent.prepare({.iteration = 3, .index = k});
  }
  for (int64_t k = 0; k < 3; ++k) {
    copy(random_at(3, k).counters, random.counters);
    const MicroBatch at{.iteration = 3, .index = k};
    EXPECT_EQ(loss_sum(sent, at), loss_sum(whole, at));
  }
  EXPECT_EQ(sent.evaluate().loss, whole.evaluate().loss);
}

TEST(TextTask, ALargeCorpusIsSentBatchByBatch) { expect_sent_like_resident({}); }

TEST(TextTask, ALargeCorpusIsSentToAGpu) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_sent_like_resident(testing::kGpu);
}

TEST(Cases, FC95_EachPartNeedsAWindow) {
  Gpt model(kTiny, fp32_context());
  const auto refuse = [&](int64_t train, int64_t val) {
    const TokenDataset data = dataset(train, val);
    return message_of<std::invalid_argument>([&] { TextTask(model, data, plan_of(2)); });
  };
  for (const int64_t n : {0, 1, 8}) {
    const std::string need = concat("need at least 9 tokens (context 8 + 1), have ", n);
    expect_holds(refuse(n, 30), "training", need);
    expect_holds(refuse(30, n), "validation", need);
  }
  for (const int64_t n : {9, 10}) {
    const TokenDataset data = dataset(n, n);
    TextTask task(model, data, plan_of(20));
    for (const int64_t first : task.rows({})) {
      EXPECT_LE(first, n - 9);
    }
    EXPECT_GT(task.evaluate().loss, 0.0);
  }
}

TEST(TextTask, AnotherVocabularyThrows) {
  Gpt model(kTiny, fp32_context());
  const TokenDataset data = dataset(40, 30, 12);
  expect_holds(
      message_of<std::invalid_argument>([&] { TextTask(model, data, plan_of(2)); }), "11", "12");
}

}  // namespace
}  // namespace halftone
