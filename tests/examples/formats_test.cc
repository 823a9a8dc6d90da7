#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace halftone {
namespace {

using testing::ProgramResult;

ProgramResult formats(const std::vector<std::string>& arguments, const std::string& input = "") {
  return testing::run_program(testing::built("formats"), arguments, {.input = input});
}

// What a run without errors printed.
std::string printed(const std::vector<std::string>& arguments, const std::string& input = "") {
  const ProgramResult result = formats(arguments, input);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

// One line on standard error that holds `text`, nothing on standard output, and this exit status.
void expect_refused(int status,
                    const std::string& text,
                    const std::vector<std::string>& arguments) {
  const ProgramResult result = formats(arguments);
  EXPECT_EQ(result.exit_code, status) << result.err;
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
}

TEST(FormatsProgram, PrintsInputCodeValueAndError) {
  EXPECT_EQ(printed({"--to", "e4m3", "464", "0.1", "0x1.8p3"}),
            "464 0x7e 448 16\n0.1 0x1d 0.1015625 0.0015625\n0x1.8p3 0x54 12 0\n");
  EXPECT_EQ(printed({"--to", "tf32", "1", "-1"}), "1 0x1fc00 1 0\n-1 0x5fc00 -1 0\n");
  EXPECT_EQ(printed({"--to=e2m1", "-6", "0.2"}), "-6 0xf -6 0\n0.2 0x0 0 0.2\n");
  EXPECT_EQ(printed({"--to", "bf16", "nan", "inf", "-inf"}),
            "nan 0x7fff nan nan\ninf 0x7f80 inf 0\n-inf 0xff80 -inf 0\n");
  EXPECT_EQ(printed({"--to", "e8m0", "3", "3.5"}), "3 0x80 2 1\n3.5 0x81 4 0.5\n");
}

TEST(FormatsProgram, PrintsJson) {
  EXPECT_EQ(printed({"--json", "--to", "e4m3", "464"}),
            "{\"input\":\"464\",\"code\":\"0x7e\",\"value\":448,\"error\":16}\n");
  EXPECT_EQ(printed({"--to", "e4m3", "--json", "nan", "inf", "-0"}),
            "{\"input\":\"nan\",\"code\":\"0x7f\",\"value\":\"nan\",\"error\":\"nan\"}\n"
            "{\"input\":\"inf\",\"code\":\"0x7e\",\"value\":448,\"error\":\"inf\"}\n"
            "{\"input\":\"-0\",\"code\":\"0x80\",\"value\":-0,\"error\":0}\n");
}

TEST(FormatsProgram, ReadsValuesFromStandardInput) {
  EXPECT_EQ(printed({"--to", "fp16"}, "1\n\n  -0\t\r\n65520"),
            "1 0x3c00 1 0\n-0 0x8000 -0 0\n65520 0x7c00 inf inf\n");
  EXPECT_EQ(printed({"--to", "fp16"}, ""), "");
  const ProgramResult bad = formats({"--to", "fp16"}, "1\n\n2x\n3\n");
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(bad.out, "1 0x3c00 1 0\n");
  EXPECT_NE(bad.err.find("line 3: '2x' is not a number"), std::string::npos) << bad.err;
  EXPECT_EQ(formats({"--to", "e2m1"}, "nan\n").exit_code, 1);
}

TEST(FormatsProgram, NegativeNumbersAreValues) {
  const std::string expected =
      "-448 0xfe -448 0\n-0 0x80 -0 0\n-.5 0xb0 -0.5 0\n-0x1p-9 0x81 -0.001953125 0\n";
  EXPECT_EQ(printed({"--to", "e4m3", "-448", "-0", "-.5", "-0x1p-9"}), expected);
  EXPECT_EQ(printed({"-448", "-0", "-.5", "--to", "e4m3", "-0x1p-9"}), expected);
  EXPECT_EQ(printed({"--to", "e4m3", "--", "-448", "-0", "-.5", "-0x1p-9"}), expected);
  EXPECT_EQ(printed({"--to", "e5m2", "-inf"}), "-inf 0xfb -57344 inf\n");
}

TEST(FormatsProgram, RoundsTheTextOnce) {
  // In double this is 464, a tie that stays at 448; the text lies above it.
  EXPECT_EQ(printed({"--to", "e4m3", "--overflow", "ieee", "464", "464.00000000000000000000001"}),
            "464 0x7e 448 16\n464.00000000000000000000001 0x7f nan nan\n");
  EXPECT_EQ(
      printed({"--to", "e4m3", "1.0625", "1.0625000000000000000001", "1.0624999999999999999999"}),
      "1.0625 0x38 1 0.0625\n1.0625000000000000000001 0x39 1.125 0.0625\n"
      "1.0624999999999999999999 0x38 1 0.0625\n");
  EXPECT_EQ(printed({"--to", "fp16", "--round", "zero", "1e400", "inf"}),
            "1e400 0x7bff 65504 inf\ninf 0x7c00 inf 0\n");
}

TEST(FormatsProgram, TakesRoundingAndOverflow) {
  EXPECT_EQ(printed({"--to", "e2m1", "--round", "zero", "5.9"}), "5.9 0x6 4 1.9\n");
  EXPECT_EQ(printed({"--to", "fp16", "--overflow", "saturate", "inf"}), "inf 0x7bff 65504 inf\n");
  EXPECT_EQ(printed({"--to", "e5m2", "--overflow", "ieee", "61440"}), "61440 0x7c inf inf\n");
  EXPECT_EQ(printed({"--to", "e4m3", "--overflow", "default", "1000"}), "1000 0x7e 448 552\n");

  const std::vector<std::string> stochastic = {"--to", "e4m3", "--round", "stochastic", "--seed"};
  const auto with_seed = [&](const std::string& seed) {
    std::vector<std::string> arguments = stochastic;
    arguments.push_back(seed);
    return printed(arguments, [] {
      std::string lines;
      for (int i = 0; i < 1000; ++i) {
        lines += "1.03125\n";  // a quarter of the way from 1 to 1.125
      }
      return lines;
    }());
  };
  const std::string first = with_seed("1");
  EXPECT_EQ(first, with_seed("1"));
  EXPECT_NE(first, with_seed("2"));
  int up = 0;
  for (size_t at = first.find("0x39"); at != std::string::npos; at = first.find("0x39", at + 1)) {
    ++up;
  }
  EXPECT_NEAR(up, 250, 5 * 14);  // the deviation of 1000 draws is 13.7
}

TEST(FormatsProgram, ListsEveryFormat) {
  const std::string list = printed({"--list"});
  for (const char* name :
       {"fp32", "tf32", "bf16", "fp16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "e8m0"}) {
    EXPECT_NE(list.find(std::string("\n") + name + " "), std::string::npos) << list;
  }
  EXPECT_NE(printed({"--list", "--json"})
                .find("{\"format\":\"e4m3\",\"bits\":8,\"max\":448,\"min_normal\":0.015625,"
                      "\"min_subnormal\":0.001953125,\"epsilon\":0.125,\"specials\":\"NaN\"}\n"),
            std::string::npos);
}

TEST(FormatsProgram, RefusesWhatAFormatCannotHold) {
  expect_refused(2, "'nan': e2m1 has no NaN", {"--to", "e2m1", "1", "nan"});
  expect_refused(2, "e3m2 has neither", {"--to", "e3m2", "--overflow", "ieee", "1"});
  expect_refused(2, "'-1': e8m0 has no sign", {"--to", "e8m0", "-1"});
  expect_refused(2, "known are fp32, tf32, bf16", {"--to", "fp8", "1"});
  expect_refused(2, "no number but zero", {"--to", "e1m0", "1"});
  expect_refused(2, "'1x' is not a number", {"--to", "e4m3", "1x"});
  expect_refused(2, "'' is not a number", {"--to", "e4m3", ""});
  expect_refused(2, "'1,2' is not a number", {"--to", "e4m3", "1,2"});
}

TEST(Cases, FC108_WordsAfterAFlagAreAnError) {
  expect_refused(2, "'false' is not a number", {"--json", "false", "--to", "e4m3", "1"});
  expect_refused(2, "--json takes no value", {"--json=false", "--to", "e4m3", "1"});
  expect_refused(2, "--json takes no value", {"--json=no", "--to", "e4m3", "1"});
}

TEST(Cases, FC110_WrongOptionsExitWithTwo) {
  expect_refused(2, "stepz", {"--stepz", "1"});
  expect_refused(2, "roun", {"--to", "e4m3", "--roun", "zero", "1"});
  expect_refused(2, "to", {"--to"});
  expect_refused(2, "--to FORMAT is missing", {"1"});
  expect_refused(
      2, "expected one of nearest, zero, stochastic", {"--to", "e4m3", "--round", "up", "1"});
  expect_refused(
      2, "expected one of default, saturate, ieee", {"--to", "e4m3", "--overflow", "inf", "1"});
  expect_refused(2, "abc", {"--to", "e4m3", "--seed", "abc", "1"});
  expect_refused(2, "--list stands alone", {"--list", "--to", "e4m3"});
  const std::string help = printed({"--help"});
  EXPECT_NE(help.find("formats --to FORMAT"), std::string::npos) << help;
}

}  // namespace
}  // namespace halftone
