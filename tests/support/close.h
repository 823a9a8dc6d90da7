// all_close: |a - b| <= atol + rtol * |b| for every element, or a failure that names the worst. NaN
// never passes by accident, and an infinity is close to nothing but itself.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>

#include "tests/support/tolerance.h"

namespace halftone::testing {

enum class Nans { fail, match };  // match: a NaN is right exactly where one is expected

/// Compares two contiguous ranges of numbers; use as EXPECT_TRUE(all_close(actual, expected,
/// tolerance)).
template <class Actual, class Expected>
::testing::AssertionResult all_close(const Actual& actual,
                                     const Expected& expected,
                                     Tolerance tolerance,
                                     Nans nans = Nans::fail) {
  if (std::size(actual) != std::size(expected)) {
    return ::testing::AssertionFailure()
           << "sizes differ: " << std::size(actual) << ", expected " << std::size(expected);
  }
  int64_t failures = 0;
  size_t worst = 0;
  double worst_excess = -1.0;  // difference over what was allowed
  for (size_t i = 0; i < std::size(actual); ++i) {
    const double a = static_cast<double>(std::data(actual)[i]);
    const double b = static_cast<double>(std::data(expected)[i]);
    if (a == b || (nans == Nans::match && std::isnan(a) && std::isnan(b))) {
      continue;
    }
    const double difference = std::fabs(a - b);
    const double allowed = tolerance.atol + tolerance.rtol * std::fabs(b);
    if (std::isfinite(a) && std::isfinite(b) && difference <= allowed) {
      continue;
    }
    ++failures;
    const double excess = std::isfinite(difference) ? difference / allowed : HUGE_VAL;
    if (!(excess <= worst_excess)) {
      worst = i;
      worst_excess = std::isnan(excess) ? HUGE_VAL : excess;
    }
  }
  if (failures == 0) {
    return ::testing::AssertionSuccess();
  }
  const double a = static_cast<double>(std::data(actual)[worst]);
  const double b = static_cast<double>(std::data(expected)[worst]);
  return ::testing::AssertionFailure()
         << failures << " of " << std::size(actual) << " elements differ, worst at index " << worst
         << ": " << ::testing::PrintToString(a) << ", expected " << ::testing::PrintToString(b)
         << ", difference " << std::fabs(a - b) << ", allowed "
         << tolerance.atol + tolerance.rtol * std::fabs(b);
}

/// The same for one number.
inline ::testing::AssertionResult close(double actual,
                                        double expected,
                                        Tolerance tolerance,
                                        Nans nans = Nans::fail) {
  const double a[] = {actual};
  const double b[] = {expected};
  return all_close(a, b, tolerance, nans);
}

}  // namespace halftone::testing
