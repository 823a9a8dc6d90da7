// Whole-number arithmetic that sizes and tiles are made of.
#pragma once

#include <cstdint>

namespace halftone {

/// n / by, rounded up; n >= 0, by > 0.
constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// The smallest multiple that is not below n; n >= 0, multiple > 0.
constexpr int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

}  // namespace halftone
