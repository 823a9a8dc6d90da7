#include <gtest/gtest.h>

#include "tests/support/run_program.h"

namespace halftone {
namespace {

using testing::built;
using testing::run_program;

TEST(CustomOp, ChecksItsGradientAndTrains) {
  const auto result = run_program(built("custom_op"), {"--steps", "600"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("softsign: gradient within"), std::string::npos) << result.out;
  const size_t at = result.out.find("mean squared error ");
  ASSERT_NE(at, std::string::npos) << result.out;
  EXPECT_LT(std::stod(result.out.substr(at + 19)), 0.02);
}

TEST(CustomOp, WrongUsageExitsWithTwo) {
  EXPECT_EQ(run_program(built("custom_op"), {"--steps", "0"}).exit_code, 2);
  EXPECT_EQ(run_program(built("custom_op"), {"--stepz", "1"}).exit_code, 2);
}

}  // namespace
}  // namespace halftone
