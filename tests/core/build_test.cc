// What the build promises: NaN and infinity that survive the compiler's flags, a whole CPU build
// where there is no nvcc, and tests of a GPU that say "skipped" where there is none.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::ProgramResult;
using testing::run_program;

ProgramResult compile_with(const std::string& flag) {
  return run_program(
      HALFTONE_CXX,
      {"-std=c++20", flag, "-fsyntax-only", "-x", "c++", HALFTONE_SOURCE_DIR "/core/check.h"});
}

TEST(Cases, FC120_FastMathBuildsAreRefused) {
  EXPECT_EQ(compile_with("-O2").exit_code, 0);
  for (const char* flag : {"-ffast-math", "-ffinite-math-only"}) {
    const ProgramResult r = compile_with(flag);
    EXPECT_NE(r.exit_code, 0) << flag;
    expect_holds(r.err, "needs NaN and infinity", "-ffast-math");
  }
  // And what this build was made with, kernels included.
  std::ifstream commands(HALFTONE_BIN_DIR "/../compile_commands.json");
  int compiled = 0;
  for (std::string line; std::getline(commands, line);) {
    if (line.find("\"command\": ") != std::string::npos) {
      ++compiled;
      const bool is_kernel = line.find(".cu.o -c ") != std::string::npos;
      expect_holds(line, "-ffp-contract=off", is_kernel ? "-fmad=false" : "");
      EXPECT_EQ(line.find("fast-math"), std::string::npos) << line;
      EXPECT_EQ(line.find("fast_math"), std::string::npos) << line;
    }
  }
  EXPECT_GT(compiled, 50);
}

TEST(GpuTests, SayThatTheyAreSkippedWithoutAGpu) { HALFTONE_SKIP_WITHOUT_GPU(); }

TEST(Cases, FC122_WithoutAGpuItsTestsAreSkippedNotPassed) {
  const ProgramResult r = run_program(testing::built("core_tests"),
                                      {"--gtest_filter=GpuTests.*"},
                                      {.environment = {"CUDA_VISIBLE_DEVICES="}});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  expect_holds(r.out, "[  PASSED  ] 0 tests", "[  SKIPPED ] 1 test", "no GPU here");
}

TEST(Cases, FC122_WithoutNvccTheCpuBuildConfigures) {
  const testing::TempFolder folder;
  const auto configure = [&](const char* cuda) {
    return run_program("/usr/bin/env",
                       {"cmake",
                        "-S",
                        HALFTONE_SOURCE_DIR,
                        "-B",
                        folder / cuda,
                        std::string("-DHALFTONE_CUDA=") + cuda,
                        "-DCMAKE_CUDA_COMPILER=NOTFOUND",
                        "-DCMAKE_CXX_COMPILER=" HALFTONE_CXX,
                        "-DBUILD_TESTING=OFF"});
  };
  const ProgramResult without = configure("AUTO");
  EXPECT_EQ(without.exit_code, 0) << without.err;
  expect_holds(without.out, "CUDA FALSE");
  const ProgramResult insisted = configure("ON");
  EXPECT_NE(insisted.exit_code, 0);
  expect_holds(insisted.err, "no CUDA compiler was found", "nvcc 12.0");
}

}  // namespace
}  // namespace halftone
