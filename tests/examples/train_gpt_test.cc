#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "data/files.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::built;
using testing::expect_holds;
using testing::ProgramResult;
using testing::run_program;
using testing::TempFolder;
using Arguments = std::vector<std::string>;

const std::string kCorpus = HALFTONE_SOURCE_DIR "/data/samples/halftone.txt";

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Arguments kTiny{"--layers",
                      "1",
                      "--heads",
                      "2",
                      "--width",
                      "16",
                      "--context",
                      "8",
                      "--batch",
                      "4",
                      "--lr",
                      "1e-2",
                      "--device",
                      "cpu",
                      "--threads",
                      "2",
                      "--quiet"};

std::string read_text(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

ProgramResult train(const Arguments& arguments) {
  return run_program(built("train_gpt"), kTiny + arguments);
}

// Runs to the end; the first line of the log, and the values of one field of all step lines.
void train_ok(const Arguments& arguments) {
  const ProgramResult result = train(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

std::vector<std::string> field_of_steps(const std::string& log, const std::string& field) {
  std::vector<std::string> values;
  const std::string key = "\"" + field + "\":";
  for (size_t at = 0; at < log.size();) {
    const std::string line = log.substr(at, log.find('\n', at) - at);
    at += line.size() + 1;
    if (line.starts_with("{\"event\":\"step\"")) {
      const size_t begin = line.find(key) + key.size();
      values.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
    }
  }
  return values;
}

void expect_refused(int status, const Arguments& arguments, const std::string& text) {
  const ProgramResult result = train(arguments);
  EXPECT_EQ(result.exit_code, status) << result.err;
  expect_holds(result.err, text);
}

TEST(TrainGpt, LearnsAndLogs) {
  const TempFolder folder;
  const std::string log = folder / "run.jsonl";
  train_ok({"--data", kCorpus, "--steps", "60", "--warmup", "5", "--log", log, "--dropout", "0.1"});
  const std::string text = read_text(log);
  const std::vector<std::string> losses = field_of_steps(text, "loss");
  ASSERT_EQ(losses.size(), 60u);
  EXPECT_NEAR(std::stod(losses.front()), 4.25, 0.2);  // log of the vocabulary of 70
  EXPECT_LT(std::stod(losses.back()), 4.0);
  EXPECT_EQ(field_of_steps(text, "targets").front(), "32");
  expect_holds(text,
               "\"event\":\"start\"",
               "\"vocab\":70",
               "\"unit\":\"chars\"",
               "\"event\":\"eval\",\"step\":60",
               "\"tokens_per_s\"",
               "\"event\":\"summary\",\"steps\":60");
}

TEST(TrainGpt, SizeSetsShapeAndSchedule) {
  const TempFolder folder;
  const std::string log = folder / "run.jsonl";
  const std::string init = folder / "init.h5";
  const auto start_line = [&](const Arguments& arguments) {
    // The initial state alone: sizes are given, so that it is small.
    train_ok(Arguments{"--data", kCorpus, "--grad-accum", "1", "--stop-after", "0", "--overwrite"} +
             Arguments{"--out", init, "--log", log} + arguments);
    const std::string text = read_text(log);
    return text.substr(0, text.find('\n'));
  };
  expect_holds(start_line({}),
               "\"steps\":5000",
               "\"min-lr\":1e-04",
               "\"warmup\":100",
               "\"beta1\":0.9",
               "\"beta2\":0.99",
               "\"weight-decay\":0.1",
               "\"clip\":1",
               "\"dropout\":0.2",
               "\"bias\":\"off\"");
  expect_holds(start_line({"--size", "gpt2", "--warmup", "7"}),
               "\"steps\":600000",
               "\"min-lr\":6e-05",
               "\"warmup\":7",
               "\"beta2\":0.95",
               "\"dropout\":0,");
}

TEST(TrainGpt, EpochsCountTheTrainingTokens) {
  const TempFolder folder;
  const std::string corpus = folder / "ab.txt";
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "ab";
  }
  write_text(corpus, text);
  // 1,800 tokens to train on, in steps of 4 windows of 8 by 2 micro-batches: 28.125 an epoch.
  const ProgramResult result = train({"--data", corpus, "--grad-accum", "2", "--epochs", "0.5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_holds(result.out, "1800 training", "done: 15 of 15 steps");
  expect_refused(2, {"--data", corpus, "--epochs", "1", "--steps", "1"}, "exclude each other");
}

class ResumedRun : public ::testing::TestWithParam<const char*> {};

TEST_P(ResumedRun, EqualsTheUninterruptedOne) {
  const TempFolder folder;
  const Arguments common{"--data",
                         kCorpus,
                         "--steps",
                         "12",
                         "--dropout",
                         "0.1",
                         "--precision",
                         GetParam(),
                         "--grad-accum",
                         "2",
                         "--eval-every",
                         "6"};
  train_ok(common + Arguments{"--out", folder / "whole.h5", "--log", folder / "whole.jsonl"});
  train_ok(common + Arguments{"--out", folder / "part.h5", "--log", folder / "part.jsonl"} +
           Arguments{"--stop-after", "5"});
  const ProgramResult rest = run_program(built("train_gpt"),
                                         {"--resume",
                                          folder / "part.h5",
                                          "--data",
                                          kCorpus,
                                          "--log",
                                          folder / "part.jsonl",
                                          "--device",
                                          "cpu",
                                          "--threads",
                                          "1",
                                          "--quiet"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(read_file(folder / "part.h5"), read_file(folder / "whole.h5"));
  for (const char* field : {"loss", "grad_norm", "lr"}) {
    EXPECT_EQ(field_of_steps(read_text(folder / "part.jsonl"), field),
              field_of_steps(read_text(folder / "whole.jsonl"), field));
  }
}

INSTANTIATE_TEST_SUITE_P(TrainGpt,
                         ResumedRun,
                         ::testing::Values("fp32",
                                           "fp16",
                                           "bf16-pure,update=stochastic",
                                           "fp8-delayed",
                                           "mxfp8,round=stochastic"));

TEST(TrainGpt, RecomputationGivesTheSameLosses) {
  const TempFolder folder;
  const Arguments common{"--data", kCorpus, "--steps", "5", "--dropout", "0.1", "--precision"};
  for (const char* recipe : {"bf16", "fp8-delayed"}) {
    train_ok(common + Arguments{recipe, "--log", folder / "kept.jsonl"});
    train_ok(common + Arguments{recipe, "--log", folder / "again.jsonl", "--recompute"});
    EXPECT_EQ(field_of_steps(read_text(folder / "again.jsonl"), "loss"),
              field_of_steps(read_text(folder / "kept.jsonl"), "loss"));
  }
}

TEST(Cases, FC104_SameSeedSameBytes) {
  const TempFolder folder;
  const std::string corpus = folder / "ab.txt";
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "abab";  // the same tokens again and again
  }
  write_text(corpus, text);
  for (const char* threads : {"1", "2"}) {
    const ProgramResult result = run_program(built("train_gpt"),
                                             {"--data",
                                              corpus,
                                              "--layers",
                                              "1",
                                              "--heads",
                                              "2",
                                              "--width",
                                              "16",
                                              "--batch",
                                              "8",
                                              "--context",
                                              "16",
                                              "--precision",
                                              "bf16",
                                              "--steps",
                                              "50",
                                              "--threads",
                                              threads,
                                              "--device",
                                              "cpu",
                                              "--quiet",
                                              "--out",
                                              folder / (std::string(threads) + ".h5")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_EQ(read_file(folder / "1.h5"), read_file(folder / "2.h5"));
}

TEST(Cases, FC95_CorpusShorterThanTheContext) {
  const TempFolder folder;
  const std::string corpus = folder / "short.txt";
  write_text(corpus, "abcdefgh");  // 7 characters for training
  expect_refused(1, {"--data", corpus}, "need at least 9 tokens (context 8 + 1), have 7");
  write_text(corpus, std::string(80, 'x'));  // 8 for validation
  expect_refused(1, {"--data", corpus}, "need at least 9 tokens (context 8 + 1), have 8");
  write_text(corpus, "");
  expect_refused(1, {"--data", corpus}, "empty");
  expect_refused(1, {"--data", folder / "missing.txt"}, "missing.txt");
}

TEST(Cases, FC98_AnotherVocabularyIsRefusedByName) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "to be or not\n";
  }
  std::string crlf;
  for (const char c : text) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
  }
  write_text(folder / "lf.txt", text);
  write_text(folder / "crlf.txt", crlf);
  write_text(folder / "bom.txt", "\xEF\xBB\xBF" + text);
  train_ok({"--data", folder / "lf.txt", "--steps", "2", "--out", folder / "run.h5"});
  const auto resume = [&](const char* name, const Arguments& more) {
    return run_program(
        built("train_gpt"),
        Arguments{"--resume", folder / "run.h5", "--data", folder / name, "--steps", "3"} + more);
  };
  for (const auto& [name, symbol] : {std::pair{"crlf.txt", "U+000D"}, {"bom.txt", "U+FEFF"}}) {
    const ProgramResult refused = resume(name, {});
    EXPECT_EQ(refused.exit_code, 1) << refused.out;
    expect_holds(refused.err, "vocabulary", symbol);
  }
  const ProgramResult noted = train({"--data", folder / "crlf.txt", "--steps", "1"});
  expect_holds(noted.out, "40 carriage returns", "vocabulary of 9");
  // Normalised, it is the same text.
  const ProgramResult normalized =
      train({"--data", folder / "crlf.txt", "--steps", "1", "--normalize"});
  expect_holds(normalized.out, "vocabulary of 8");
}

TEST(TrainGpt, WrongUsageExitsWithTwo) {
  expect_refused(2, {"--data", kCorpus, "--heads", "3"}, "--heads is given twice");
  expect_refused(2, {"--data", kCorpus, "--bias", "false"}, "--bias");
  expect_refused(2, {"--data", kCorpus, "--text", "words"}, "--text");
  const ProgramResult heads = run_program(
      built("train_gpt"), {"--data", kCorpus, "--heads", "5", "--width", "16", "--steps", "1"});
  EXPECT_EQ(heads.exit_code, 2);
  expect_holds(heads.err, "--heads 5", "--width 16");
}

}  // namespace
}  // namespace halftone
