// The small parts of models/: parameters, schedule, JSON, the log's lines, instruments.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/autograd.h"
#include "core/convert.h"
#include "core/formats.h"
#include "data/files.h"
#include "models/linear_layer.h"
#include "models/run_log.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"
#include "tests/support/tiny_run.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;
using testing::TinyRun;

TEST(Schedule, WarmsUpThenFollowsTheCosine) {
  const ScheduleOptions options{.lr = 1.0, .min_lr = 0.1, .warmup = 3, .steps = 13};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.25);  // (0 + 1) / (3 + 1)
  EXPECT_DOUBLE_EQ(learning_rate(options, 2), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3), 1.0);
  EXPECT_NEAR(learning_rate(options, 8), 0.55, 1e-12);  // half way
  EXPECT_DOUBLE_EQ(learning_rate(options, 13), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 99), 0.1);
  const Tensor table = make_schedule(options, 0.9, 0.99, {});
  EXPECT_EQ(table.shape(), (Shape{13, 3}));
  const float* row = table.data<float>() + 3 * 8;  // t = 9
  EXPECT_EQ(row[0], static_cast<float>(learning_rate(options, 8)));
  EXPECT_EQ(row[1], static_cast<float>(1.0 / (1.0 - std::pow(0.9, 9))));
  EXPECT_EQ(row[2], static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(0.99, 9))));
}

TEST(ParameterSet, LaysOutAlignedBuffersWithZeroGaps) {
  ParameterSet set;
  Parameter& a = set.declare("a", {3, 5}, Init::normal(1.0f));
  Parameter& b = set.declare("b", {65}, Init::ones());
  set.declare("c", {2, 2}, Init::uniform(0.5f));
  EXPECT_THROW(set.declare("a", {1}, Init::zeros()), std::invalid_argument);
  set.allocate(parse_recipe("bf16"), 1, {});
  EXPECT_THROW(set.declare("d", {1}, Init::zeros()), std::invalid_argument);
  EXPECT_EQ(a.offset, 0);
  EXPECT_EQ(b.offset, 64);
  EXPECT_EQ(set.buffers().weights.numel(), 64 + 128 + 64);
  EXPECT_EQ(set.num_elements(), 15 + 65 + 4);
  for (int64_t i = 15; i < 64; ++i) {
    EXPECT_EQ(set.buffers().weights.data<float>()[i], 0.0f);
  }
  EXPECT_EQ(set.buffers().decays.to_doubles(), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(a.weight.dtype(), DType::bf16);
  EXPECT_EQ(a.source.dtype(), DType::f32);
  EXPECT_EQ(a.weight.data<BFloat16>()[7].bits, encode(kBf16, a.source.data<float>()[7]));
  EXPECT_EQ(set.at_offset(63).path, "a");
  EXPECT_EQ(set.at_offset(64).path, "b");
}

TEST(ParameterSet, NormalInitialisationHasItsMoments) {
  std::vector<float> values(100000);
  fill_initial(Init::normal(0.02f), 3, "wte", 100000, values.data());
  double sum = 0.0;
  double squares = 0.0;
  for (const float x : values) {
    sum += x;
    squares += double{x} * x;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 5 * 0.02 / std::sqrt(1e5));
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.02, 5 * 0.02 / std::sqrt(2e5));
  // A longer tensor of the same path begins with the same values.
  std::vector<float> longer(100003);
  fill_initial(Init::normal(0.02f), 3, "wte", 100003, longer.data());
  EXPECT_TRUE(std::equal(values.begin(), values.end(), longer.begin()));
}

TEST(Cases, FC75_GradientsAccumulateInFp32) {
  ParameterSet set;
  const LinearContext context{parse_recipe("bf16"), {}, "", {}};
  LinearLayer layer(set,
                    "fc",
                    {.in = 1, .out = 1, .has_bias = false, .weight = Init::ones(), .bias = {}},
                    context);
  set.allocate(context.recipe, 1, {});
  layer.refresh();
  const auto one = [](float value) {
    return Tensor::from(std::vector<BFloat16>{to_bf16(value)}, {1, 1});
  };
  set.begin_gradients();
  for (const float dy : {256.0f, 1.0f}) {
    backward(layer(one(1.0f)), one(dy));
  }
  EXPECT_EQ(layer.weight().gradient.data<float>()[0], 257.0f);  // bf16 would hold 256
}

// The stored 16-bit weights are rounded to nearest already: other roundings need the FP32 ones.
TEST(LinearLayer, WeightsRoundAsTheRecipeSays) {
  const auto operand = [](const std::string& recipe) {
    ParameterSet set;
    const RandomSource random{.seed = 3, .counters = Tensor::zeros({2}, DType::i64)};
    const LinearContext context{parse_recipe(recipe), random, "", {}};
    LinearLayer layer(
        set,
        "fc",
        {.in = 64, .out = 64, .has_bias = false, .weight = Init::normal(0.02f), .bias = {}},
        context);
    set.allocate(context.recipe, 3, {});
    layer.refresh();
    return std::tuple(layer.state().w_forward().values.to_doubles(),
                      layer.weight().weight.to_doubles(),
                      layer.weight().source.to_doubles());
  };
  for (const std::string base : {"bf16", "fp16"}) {
    const auto [nearest, stored, source] = operand(base);
    EXPECT_EQ(nearest, stored) << base;
    const auto truncated = std::get<0>(operand(base + ",round=zero"));
    const auto stochastic = std::get<0>(operand(base + ",round=stochastic"));
    int up = 0;
    int down = 0;
    for (size_t i = 0; i < source.size(); ++i) {
      ASSERT_LE(std::fabs(truncated[i]), std::fabs(source[i])) << base;
      const double away = std::fabs(stochastic[i]) - std::fabs(source[i]);
      up += away > 0 && stochastic[i] != nearest[i];
      down += away < 0 && stochastic[i] != nearest[i];
    }
    EXPECT_GT(up, 256) << base;  // a quarter of all draws goes to the farther neighbour
    EXPECT_GT(down, 256) << base;
  }
}

TEST(Mlp, RefusesSizesThatMakeNoModel) {
  const LinearContext context{{}, {}, "", {}};
  EXPECT_THROW(Mlp({.hidden = {0}}, context), std::invalid_argument);
  EXPECT_THROW(Mlp({.dropout = 1.0f}, context), std::invalid_argument);
}

TEST(Json, RoundTripsFlatObjects) {
  JsonObject object;
  object.add("text", "a \"quoted\" \\ line\nwith \x01")
      .add("whole", int64_t{-42})
      .add("real", 0.1)
      .add("small", 1e-300)
      .add("float", 0.1f)
      .add("yes", true)
      .add("nan", std::numeric_limits<double>::quiet_NaN())
      .add("low", -std::numeric_limits<float>::infinity());
  const auto fields = parse_flat_json(object.text());
  ASSERT_EQ(fields.size(), 8u);
  EXPECT_EQ(std::get<std::string>(fields[0].second), "a \"quoted\" \\ line\nwith \x01");
  EXPECT_EQ(std::get<int64_t>(fields[1].second), -42);
  EXPECT_EQ(std::get<double>(fields[2].second), 0.1);
  EXPECT_EQ(std::get<double>(fields[3].second), 1e-300);
  EXPECT_NE(object.text().find("\"float\":0.1,"), std::string::npos);
  EXPECT_EQ(std::get<bool>(fields[5].second), true);
  EXPECT_EQ(std::get<std::string>(fields[6].second), "nan");
  EXPECT_EQ(std::get<std::string>(fields[7].second), "-inf");
  EXPECT_TRUE(parse_flat_json("{}").empty());
  for (const char* bad : {"", "{", "{\"a\":}", "{\"a\":1,}", "{\"a\":[1]}", "{\"a\":1} x", "[]"}) {
    EXPECT_THROW(parse_flat_json(bad), std::invalid_argument) << bad;
  }
}

TEST(RunLog, KeepsTheLinesUpToTheCheckpoint) {
  const std::string log =
      "{\"event\":\"start\",\"lr\":1}\n{\"event\":\"step\",\"step\":6}\n"
      "{\"event\":\"step\",\"step\":7}\n{\"event\":\"eval\",\"step\":7}\n"
      "{\"event\":\"step\",\"step\":8}\n{\"event\":\"eval\",\"step\":10}\n"
      "{\"event\":\"summary\",\"steps\":8}\n{\"event\":\"step\",\"st";
  EXPECT_EQ(keep_log_until(log, 7),
            "{\"event\":\"start\",\"lr\":1}\n{\"event\":\"step\",\"step\":6}\n"
            "{\"event\":\"step\",\"step\":7}\n{\"event\":\"eval\",\"step\":7}\n");
  EXPECT_EQ(keep_log_until("", 7), "");
}

TEST(RunLog, ResumesAFileOfItsOwnAndNoOther) {
  const TempFolder folder;
  const std::string start = "{\"event\":\"start\",\"lr\":1}\n";
  const std::filesystem::path path =
      folder.write("run.jsonl", start + "{\"event\":\"step\",\"step\":8}\n");
  const auto text_of = [](const std::filesystem::path& file) {
    const std::vector<uint8_t> bytes = read_file(file);
    return std::string(bytes.begin(), bytes.end());
  };
  {
    const std::filesystem::path before =
        folder / "before.jsonl";  // the old file, under a name more
    std::filesystem::create_hard_link(path, before);
    RunLog log(path, 7);
    EXPECT_EQ(text_of(path), start);
    EXPECT_EQ(text_of(before), start + "{\"event\":\"step\",\"step\":8}\n");  // never rewritten
    log.eval({.step = 9, .evaluation = {}});
    log.caught_up();
    EXPECT_EQ(text_of(path).rfind(start + "{\"event\":\"eval\",\"step\":9", 0), 0u);
  }
  const std::filesystem::path notes = folder.write("notes.txt", "mine\n");
  expect_holds(message_of<FileError>([&] { RunLog log(notes, 7); }), "notes.txt", "not the log");
  EXPECT_EQ(text_of(notes), "mine\n");
  EXPECT_NO_THROW(RunLog log(folder.write("empty.jsonl", ""), 7));
}

TEST(RunLog, SaysWhyItCannotBeWritten) {
  const TempFolder folder;
  expect_holds(message_of<FileError>([&] { RunLog log(folder / "no/such/folder.jsonl"); }),
               "folder.jsonl",
               "No such file");
}

TEST(RunLog, WritesNonFiniteNumbersAsStrings) {
  const TempFolder folder;
  RunLog log(folder / "run.jsonl");
  log.start(JsonObject().add("seed", 1), "tokens", true);
  StepEvent event;
  event.record = {};
  event.record.iteration = 3;
  event.record.loss = std::numeric_limits<float>::infinity();
  event.record.grad_norm = std::numeric_limits<float>::quiet_NaN();
  event.record.skipped = 1;
  event.record.lost_updates = 5;
  log.step(event);
  log.caught_up();
  const std::vector<uint8_t> bytes = read_file(folder / "run.jsonl");
  expect_holds(std::string(bytes.begin(), bytes.end()),
               "{\"event\":\"start\",\"seed\":1}\n",
               "\"step\":3,\"loss\":\"inf\"",
               "\"grad_norm\":\"nan\"",
               "\"skipped\":true",
               "\"lost_updates\":5",
               "\"tokens_per_s\":0}\n");
}

TEST(Cases, FC05_ZerosOfBothSignsCountAsUnderflow) {
  // What is left of -0 and -1e-10 in E4M3 is 0x80: bin 0 holds it, and 1 stands in its own.
  const uint32_t tiny = encode(kE4M3, -1e-10f);
  EXPECT_EQ(tiny, 0x80u);
  const ExponentHistogram counts = exponent_histogram(
      std::vector<float>{decode(kE4M3, encode(kE4M3, -0.0f)), decode(kE4M3, tiny), 0.0f, 1.0f});
  EXPECT_EQ(counts[0], 3u);
  EXPECT_EQ(counts[127], 1u);
}

TEST(Instruments, CountExponents) {
  const ExponentHistogram counts = exponent_histogram(
      std::vector<float>{0.0f, -0.0f, 1.0f, -1.5f, 2.0f, std::numeric_limits<float>::infinity()});
  EXPECT_EQ(counts[0], 2u);
  EXPECT_EQ(counts[127], 2u);
  EXPECT_EQ(counts[128], 1u);
  EXPECT_EQ(counts[255], 1u);

  TinyRun run({.steps = 6, .histograms = 2});
  run.train();
  Hdf5File file = Hdf5File::create();
  run.instruments.write(file);
  EXPECT_EQ(file.read<int64_t>("/histogram/step"), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(file.info("/histogram/gradient/layers.0.weight").dims, (Dims{3, 256}));
  const std::vector<uint32_t> weights = file.read<uint32_t>("/histogram/weight/layers.1.bias");
  EXPECT_EQ(std::accumulate(weights.begin(), weights.begin() + 256, 0u), 10u);
}

TEST(Instruments, CountNoPadding) {
  ParameterSet parameters;
  parameters.declare("w", {3, 4}, Init::ones(), 8);
  parameters.allocate(parse_recipe("fp32"), 1, {});
  const TinyRun run({});
  Instruments instruments(1);
  instruments.take(1, parameters, run.state);
  Hdf5File file = Hdf5File::create();
  instruments.write(file);
  const auto weights = file.read<uint32_t>("/histogram/weight/w");
  EXPECT_EQ(weights[127], 12u);
  EXPECT_EQ(weights[0], 0u);
  const auto gradients = file.read<uint32_t>("/histogram/gradient/w");
  EXPECT_EQ(std::accumulate(gradients.begin(), gradients.end(), 0u), 12u);
}

}  // namespace
}  // namespace halftone
