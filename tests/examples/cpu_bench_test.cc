#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "models/json.h"
#include "tests/support/run_program.h"

namespace halftone {
namespace {

using testing::ProgramResult;

ProgramResult cpu_bench(const std::vector<std::string>& arguments) {
  return testing::run_program(testing::built("cpu_bench"), arguments);
}

// Shape of the output alone: speed is judged by people.
TEST(CpuBench, TimesAnMlpStepInFourRecipes) {
  const ProgramResult result =
      cpu_bench({"--only", "mlp", "--rounds", "1", "--json", "--threads", "1", "--cpu-time"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<std::string> recipes;
  for (std::string line; std::getline(lines, line);) {
    std::map<std::string, JsonValue> row;
    for (const auto& [key, value] : parse_flat_json(line)) {
      row[key] = value;
    }
    const auto text = [&](const char* key) { return std::get<std::string>(row.at(key)); };
    const auto number = [&](const char* key) { return std::get<double>(row.at(key)); };
    EXPECT_EQ(text("bench"), "step");
    EXPECT_EQ(text("model"), "mlp 784-1024-1024-10");
    EXPECT_EQ(text("peer"), recipes.empty() ? "its GEMMs" : "fp32 step");
    EXPECT_GT(number("ratio"), 0.0) << line;
    EXPECT_NEAR(number("ms"), number("ratio") * number("peer_ms"), 1e-3) << line;
    recipes.push_back(text("name"));
  }
  EXPECT_EQ(recipes, (std::vector<std::string>{"fp32", "bf16", "fp16", "fp8-block"}));
}

TEST(CpuBench, RefusesAnUnknownPart) {
  const ProgramResult result = cpu_bench({"--only", "cnn"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--only cnn, expected gemm, mlp or gpt"), std::string::npos)
      << result.err;
  EXPECT_EQ(cpu_bench({"--rounds", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace halftone
