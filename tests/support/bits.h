// same_bits: two arrays equal to the last bit (so -0 differs from 0, and NaNs are equal if their
// payloads are), or a failure that shows the first difference.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <string>
#include <type_traits>

namespace halftone::testing {

/// The bytes of a value as one hexadecimal number (on a little-endian machine).
template <class T>
std::string hex_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  std::ostringstream out;
  out << "0x" << std::hex << std::setfill('0') << std::setw(2 * sizeof(T)) << bits;
  return out.str();
}

/// Compares two contiguous ranges of the same element type; use as EXPECT_TRUE(same_bits(actual,
/// expected)).
template <class Actual, class Expected>
::testing::AssertionResult same_bits(const Actual& actual, const Expected& expected) {
  using T = std::remove_cvref_t<decltype(*std::data(actual))>;
  static_assert(std::is_same_v<T, std::remove_cvref_t<decltype(*std::data(expected))>>);
  if (std::size(actual) != std::size(expected)) {
    return ::testing::AssertionFailure()
           << "sizes differ: " << std::size(actual) << ", expected " << std::size(expected);
  }
  size_t differences = 0;
  size_t first = 0;
  for (size_t i = 0; i < std::size(actual); ++i) {
    if (std::memcmp(std::data(actual) + i, std::data(expected) + i, sizeof(T)) != 0) {
      first = differences++ == 0 ? i : first;
    }
  }
  if (differences == 0) {
    return ::testing::AssertionSuccess();
  }
  const T& a = std::data(actual)[first];
  const T& b = std::data(expected)[first];
  auto failure = ::testing::AssertionFailure() << differences << " of " << std::size(actual)
                                               << " elements differ, first at index " << first
                                               << ": " << hex_of(a) << ", expected " << hex_of(b);
  if constexpr (std::is_arithmetic_v<T>) {
    failure << " (" << ::testing::PrintToString(a) << ", expected " << ::testing::PrintToString(b)
            << ")";
  }
  return failure;
}

}  // namespace halftone::testing
