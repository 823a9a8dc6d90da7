// The tests' own tools: above all that each of them can fail.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/bits.h"
#include "tests/support/close.h"
#include "tests/support/guarded.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tolerance.h"

namespace halftone::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Close, FailsUnlessWithinTheTolerance) {
  EXPECT_TRUE(close(1.0, 1.0, {}));
  EXPECT_TRUE(close(1.0 + 0x1p-10, 1.0, {.atol = 0x1p-10}));
  EXPECT_FALSE(close(1.0 + 0x1p-9, 1.0, {.atol = 0x1p-10}));
  EXPECT_TRUE(close(102.0, 100.0, {.rtol = 0.02}));
  EXPECT_FALSE(close(100.0, 102.5, {.rtol = 0.02}));
}

TEST(Close, NanFailsUnlessExpectedAndAskedFor) {
  EXPECT_FALSE(close(kNaN, 1.0, {.atol = kInf}));
  EXPECT_FALSE(close(1.0, kNaN, {.atol = kInf}));
  EXPECT_FALSE(close(kNaN, kNaN, {}));
  EXPECT_FALSE(close(1.0, 1.5, {.atol = kNaN}));
  EXPECT_TRUE(close(kNaN, kNaN, {}, Nans::match));
  EXPECT_FALSE(close(1.0, kNaN, {}, Nans::match));
}

TEST(Close, InfinityIsCloseToItselfAlone) {
  EXPECT_TRUE(close(kInf, kInf, {}));
  EXPECT_FALSE(close(1.0, kInf, {.rtol = 1.0}));
  EXPECT_FALSE(close(-kInf, kInf, {.rtol = 1.0}));
  EXPECT_FALSE(close(kInf, 1.0, {.atol = kInf}));
}

TEST(Close, NamesTheWorstElement) {
  const std::vector<float> actual{1, 2.5f, 9, 4}, expected{1, 2, 3, 4};
  const auto result = all_close(actual, expected, {.atol = 0.1});
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("2 of 4 elements differ, worst at index 2: 9"),
            std::string::npos)
      << result.message();
  EXPECT_FALSE(all_close(std::vector<float>{1}, expected, {.atol = 100}));
}

TEST(SameBits, SeesEveryBit) {
  const std::vector<float> a{1, 0, 3};
  EXPECT_TRUE(same_bits(a, a));
  const auto result = same_bits(std::vector<float>{1, -0.0f, 4}, a);
  EXPECT_FALSE(result);
  EXPECT_NE(
      std::string(result.message()).find("2 of 3 elements differ, first at index 1: 0x80000000"),
      std::string::npos)
      << result.message();
  EXPECT_FALSE(same_bits(std::vector<float>{1, 0}, a));
  const std::vector<float> nans(2, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(same_bits(nans, nans));
}

TEST(Tolerance, GrowsWithRoundingsAndLength) {
  EXPECT_EQ(unit_roundoff(DType::f32), std::numeric_limits<float>::epsilon() / 2);
  EXPECT_EQ(unit_roundoff(DType::f64), std::numeric_limits<double>::epsilon() / 2);
  EXPECT_LT(rounded(DType::f32, 1).rtol, 1.001 * 0x1p-24);
  EXPECT_GE(rounded(DType::f32, 10).rtol, 10 * 0x1p-24);
  EXPECT_EQ(summed(100, 0.0, DType::f32, DType::bf16).rtol, 0x1p-8);
  EXPECT_GT(summed(1000, 5.0, DType::f32, DType::f32).atol, 5000 * 0x1p-24);
  EXPECT_EQ(row_tree_depth(1), 1 + 8 + 1);
  EXPECT_EQ(row_tree_depth(50304), 16 + 8 + 13);
}

TEST(Guarded, StartsAsNanAndNoticesWhatIsNotWritten) {
  Guarded<float> buffer(3);
  for (const float x : buffer.span()) {
    EXPECT_TRUE(std::isnan(x));
  }
  buffer[0] = buffer[2] = 1.0f;
  EXPECT_FALSE(buffer.all_written());
  buffer[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(buffer.all_written()) << "a NaN that was written is not the poison";
}

TEST(Guarded, FailsWhenAGuardIsOverwritten) {
  EXPECT_NONFATAL_FAILURE(
      {
        Guarded<float> buffer(3);
        *(buffer.data() + 3) = 0.0f;
      },
      "written at byte 0 behind the buffer");
  EXPECT_NONFATAL_FAILURE(
      {
        Guarded<double> buffer(1);
        *(buffer.data() - 1) = 0.0;
      },
      "written 1 bytes before the buffer");
}

TEST(TempFolderTest, IsUniqueAndGoesWithItsScope) {
  std::filesystem::path path;
  {
    const TempFolder folder, other;
    path = folder.path();
    EXPECT_NE(path, other.path());
    std::filesystem::create_directory(path / "inner");
    folder.write("inner/file", "text");
    EXPECT_TRUE(std::filesystem::exists(path / "inner/file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(RunProgram, KeepsOutputAndExitCode) {
  const ProgramResult result =
      run_program("/bin/sh", {"-c", "echo to out; echo to err >&2; exit 7"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.out, "to out\n");
  EXPECT_EQ(result.err, "to err\n");
}

TEST(RunProgram, PassesInputEnvironmentAndFolder) {
  const TempFolder folder;
  const ProgramResult result = run_program("/bin/sh",
                                           {"-c", "cat; echo $HALFTONE_TEST; pwd"},
                                           {.environment = {"HALFTONE_TEST=value"},
                                            .folder = folder.path().string(),
                                            .input = "typed\n"});
  EXPECT_EQ(result.out,
            "typed\nvalue\n" + std::filesystem::canonical(folder.path()).string() + "\n");
}

TEST(RunProgram, KeepsLongOutput) {
  const ProgramResult result = run_program(
      "/bin/sh", {"-c", "i=0; while [ $i -lt 20000 ]; do echo 123456789; i=$((i+1)); done"});
  EXPECT_EQ(result.out.size(), 200000u);
}

TEST(RunProgram, SignalsAndTimesOut) {
  const ProgramResult killed =
      run_program("/bin/sh", {"-c", "sleep 60"}, {.signal_after = std::chrono::milliseconds(20)});
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.exit_code, -1);
  EXPECT_FALSE(killed.timed_out);
  const ProgramResult interrupted =
      run_program("/bin/sh",
                  {"-c", "trap 'exit 130' INT; echo ready; while true; do sleep 0.01; done"},
                  {.signal = SIGINT, .signal_when = "ready"});
  EXPECT_EQ(interrupted.exit_code, 130);
  const ProgramResult late =
      run_program("/bin/sh", {"-c", "sleep 60"}, {.timeout = std::chrono::milliseconds(20)});
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.signal, SIGKILL);
}

TEST(RunProgram, ThrowsWhenThereIsNoSuchProgram) {
  EXPECT_THROW(run_program("/nonexistent/program", {}), std::system_error);
}

}  // namespace
}  // namespace halftone::testing
