#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "data/text.h"
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

class Generate : public ::testing::Test {
 protected:
  // A model of a text with accents, hardly trained.
  void train(const std::string& unit) {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text +=
          "na\xC3\xAFve caf\xC3\xA9 \xE2\x82\xAC"
          "5\n";
    }
    std::ofstream(folder_ / "text.txt", std::ios::binary) << text;
    const ProgramResult result = run_program(built("train_gpt"), {"--data",    folder_ / "text.txt",
                                                                  "--text",    unit,
                                                                  "--layers",  "1",
                                                                  "--heads",   "2",
                                                                  "--width",   "16",
                                                                  "--context", "8",
                                                                  "--batch",   "4",
                                                                  "--steps",   "3",
                                                                  "--device",  "cpu",
                                                                  "--quiet",   "--out",
                                                                  model_,      "--overwrite"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  ProgramResult write(const Arguments& arguments) {
    Arguments all{"--from", model_, "--device", "cpu"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program(built("generate"), all);
  }

  std::string text_of(const Arguments& arguments) {
    Arguments all{"--quiet"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = write(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  TempFolder folder_;
  std::string model_ = folder_ / "model.h5";
};

TEST_F(Generate, TextIsAFunctionOfTheSeed) {
  train("chars");
  const std::string text = text_of({"--tokens", "40", "--seed", "7"});
  EXPECT_EQ(text_of({"--tokens", "40", "--seed", "7"}), text);
  EXPECT_NE(text_of({"--tokens", "40", "--seed", "8"}), text);
  EXPECT_EQ(text_of({"--tokens", "40", "--seed", "7", "--threads", "2"}), text);
  EXPECT_EQ(text_of({"--tokens", "20", "--temperature", "0", "--seed", "1"}),
            text_of({"--tokens", "20", "--top-k", "1", "--seed", "2"}));
}

TEST_F(Generate, PromptThenTokensThenALineFeed) {
  train("chars");
  const std::string text = text_of({"--prompt", "caf\xC3\xA9", "--tokens", "12"});
  EXPECT_TRUE(text.starts_with("caf\xC3\xA9")) << text;
  EXPECT_EQ(decode_utf8(text, "").size(), 4u + 12u + 1u);
  EXPECT_EQ(text_of({"--prompt", "na", "--tokens", "0"}), "na\n");
  const ProgramResult told = write({"--tokens", "3", "--seed", "9"});
  EXPECT_EQ(told.out.find("seed 9, device cpu"), 0u) << told.out;
  expect_holds(told.out, "recipe fp32", "done: 3 tokens");
}

TEST_F(Generate, BytesBecomeWholeCharacters) {
  train("bytes");
  // An untrained model of bytes writes anything; what is shown is UTF-8 all the same.
  const std::string text = text_of({"--tokens", "300", "--temperature", "2", "--top-k", "0"});
  EXPECT_NO_THROW(decode_utf8(text, ""));
  EXPECT_NE(text.find("\xEF\xBF\xBD"), std::string::npos);
}

TEST_F(Generate, CtrlCEndsTheTextAndExitsWith130) {
  train("chars");
  const ProgramResult result = run_program(
      built("generate"),
      {"--from", model_, "--tokens", "100000000"},
      {.timeout = std::chrono::seconds(60), .signal = SIGINT, .signal_when = "model of"});
  EXPECT_EQ(result.exit_code, 130) << result.signal << result.err;
  EXPECT_EQ(result.out.find("done:"), std::string::npos);
  EXPECT_TRUE(result.out.ends_with("\n"));
}

TEST_F(Generate, UnknownCharacterIsNamed) {
  train("chars");
  const ProgramResult refused = write({"--prompt", "ca\xC3\xB1"});
  EXPECT_EQ(refused.exit_code, 1);
  expect_holds(refused.err, "U+00F1", "not among the");
}

TEST_F(Generate, WhatIsNoModelOfTextIsRefused) {
  std::ofstream(folder_ / "model.h5") << "not HDF5";
  EXPECT_EQ(write({}).exit_code, 1);
  const ProgramResult missing = run_program(built("generate"), {"--from", folder_ / "none.h5"});
  EXPECT_EQ(missing.exit_code, 1);
  expect_holds(missing.err, "none.h5");
  const ProgramResult usage = run_program(built("generate"), {});
  EXPECT_EQ(usage.exit_code, 2);
  expect_holds(usage.err, "--from");
  EXPECT_EQ(run_program(built("generate"), {"--from", model_, "--tokens", "-1"}).exit_code, 2);
  EXPECT_EQ(run_program(built("generate"), {"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace halftone
