// Training runs compared by the bits of everything they leave: step records, weights, evaluations.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/step_state/step_state.h"
#include "tests/support/bits.h"

namespace halftone::testing {

inline std::vector<uint8_t> bytes_of(const std::vector<StepRecord>& records) {
  std::vector<uint8_t> bytes(records.size() * sizeof(StepRecord));
  std::memcpy(bytes.data(), records.data(), bytes.size());
  return bytes;
}

/// Checks that a run left what another did. Run has told and weights() as TinyRun does.
template <class Run>
void expect_same(Run& actual, Run& expected) {
  const std::vector<StepRecord>& steps = expected.told.steps;
  ASSERT_EQ(actual.told.steps.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_TRUE(same_bits(bytes_of({actual.told.steps[i]}), bytes_of({steps[i]})))
        << "step " << i + 1 << ": loss " << actual.told.steps[i].loss << ", expected "
        << steps[i].loss;
  }
  EXPECT_TRUE(same_bits(actual.weights(), expected.weights()));
  ASSERT_EQ(actual.told.evals.size(), expected.told.evals.size());
  for (size_t i = 0; i < expected.told.evals.size(); ++i) {
    EXPECT_EQ(actual.told.evals[i].evaluation.loss, expected.told.evals[i].evaluation.loss);
  }
  // Where the CPU reads what a step left, a GPU waits, and nowhere else.
  EXPECT_EQ(actual.told.end.sync_calls, expected.told.end.sync_calls);
}

}  // namespace halftone::testing
