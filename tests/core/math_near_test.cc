// The near functions have the bits of the whole ones, over every 257th float of their domain and
// its ends.
#include "core/math_near.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace halftone {
namespace {

/// Calls visit(x) for floats of magnitude up to `limit`, the limit and both zeros among them.
template <class Visit>
void for_magnitudes(float limit, const Visit& visit) {
  const uint32_t end = std::bit_cast<uint32_t>(limit);
  const auto both = [&](uint32_t bits) {
    visit(std::bit_cast<float>(bits));
    visit(std::bit_cast<float>(bits | 0x80000000u));
  };
  for (uint64_t bits = 0; bits < end; bits += 257) {
    both(static_cast<uint32_t>(bits));
  }
  both(end);
}

void expect_same(float near, float whole, float x) {
  ASSERT_EQ(std::bit_cast<uint32_t>(near), std::bit_cast<uint32_t>(whole)) << "at " << x;
}

TEST(MathNear, ExpHasTheBitsOfTheWhole) {
  for_magnitudes(-math::kExpNear, [](float x) {
    if (std::signbit(x) || x == 0.0f) {
      expect_same(math::exp_near(x), math::exp(x), x);
    }
  });
}

TEST(MathNear, GeluHasTheBitsOfTheWhole) {
  for_magnitudes(math::kGeluNear, [](float x) {
    expect_same(math::gelu_near(x), math::gelu(x), x);
    expect_same(math::gelu_grad_near(x), math::gelu_grad(x), x);
  });
}

TEST(MathNear, NaNStaysNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float x : {nan, -nan}) {
    EXPECT_TRUE(std::isnan(math::gelu_near(x)));
    EXPECT_TRUE(std::isnan(math::gelu_grad_near(x)));
  }
}

}  // namespace
}  // namespace halftone
