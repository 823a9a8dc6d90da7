// Elementary functions against the C library's double versions over every 257th float bit pattern
// (an odd stride, so the low bits vary), limits, symmetry, and the recorded bits that every
// compiler, instruction set and device must give.
#include "core/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace halftone {
namespace {

constexpr uint64_t kStride = 257;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Calls visit(x) for every kStride-th float, NaNs and infinities among them.
template <class Visit>
void for_floats(Visit&& visit) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += kStride) {
    visit(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
}

/// Distance from `reference` in units of the spacing of floats around it.
double ulps_off(float value, double reference) {
  int exponent;
  std::frexp(reference, &exponent);
  return std::fabs(value - reference) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

/// The largest error of `function` in ulp where `reference` is finite in FP32; elsewhere (NaN,
/// infinity, a result beyond the largest float) the two must be equal, or the error is infinite.
template <class Function, class Reference>
double max_ulps_off(Function&& function, Reference&& reference, float from = -kInf) {
  double worst = 0.0;
  for_floats([&](float x) {
    if (x < from) {
      return;
    }
    const float y = function(x);
    const double expected = reference(static_cast<double>(x));
    const float rounded = static_cast<float>(expected);
    if (std::isfinite(rounded)) {
      const double error = ulps_off(y, expected);
      worst = error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
    } else if (std::isnan(expected) ? !std::isnan(y) : y != rounded) {
      worst = HUGE_VAL;
    }
  });
  return worst;
}

TEST(Math, ExpIsWithinOneUlp) {
  EXPECT_LE(
      max_ulps_off([](float x) { return math::exp(x); }, [](double x) { return std::exp(x); }),
      1.0);
}

TEST(Math, LogIsWithinOneUlp) {
  EXPECT_LE(
      max_ulps_off([](float x) { return math::log(x); }, [](double x) { return std::log(x); }),
      1.0);
}

TEST(Math, TanhIsWithinTwoUlp) {
  EXPECT_LE(
      max_ulps_off([](float x) { return math::tanh(x); }, [](double x) { return std::tanh(x); }),
      1.5);
}

TEST(Math, RsqrtIsWithinOneAndAHalfUlp) {
  EXPECT_LE(max_ulps_off([](float x) { return math::rsqrt(x); },
                         [](double x) { return 1 / std::sqrt(x); }),
            1.5);
}

TEST(Math, ErfIsWithinTwoUlp) {
  EXPECT_LE(
      max_ulps_off([](float x) { return math::erf(x); }, [](double x) { return std::erf(x); }),
      1.6);
}

TEST(Math, SigmoidIsWithinThreeUlp) {
  EXPECT_LE(max_ulps_off([](float x) { return math::sigmoid(x); },
                         [](double x) { return 1 / (1 + std::exp(-x)); }),
            3.0);
}

// The reference is the textbook form, not the one the code uses.
double gelu_textbook(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_grad_textbook(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  const double far =
      std::fabs(x) > 100 ? 0 : (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * far;
}

TEST(Math, GeluIsWithinFourUlpForPositiveAndTinyErrorForNegative) {
  EXPECT_LE(max_ulps_off([](float x) { return math::gelu(x); }, gelu_textbook, 0.0f), 4.0);
  double worst = 0.0, worst_grad = 0.0;
  for_floats([&](float x) {
    if (std::fabs(x) < 1e30f) {
      worst_grad = std::fmax(worst_grad, std::fabs(math::gelu_grad(x) - gelu_grad_textbook(x)));
      worst = std::fmax(worst, x < 0 ? std::fabs(math::gelu(x) - gelu_textbook(x)) : 0.0);
    }
  });
  EXPECT_LE(worst, 0x1p-23);
  EXPECT_LE(worst_grad, 0x1p-21);
}

TEST(Math, NanAndInfinityReachTheirLimits) {
  EXPECT_EQ(math::exp(kInf), kInf);
  EXPECT_EQ(math::exp(-kInf), 0.0f);
  EXPECT_EQ(math::exp(0.0f), 1.0f);
  EXPECT_EQ(math::exp(-103.0f), 0x1p-149f) << "gradual underflow";
  EXPECT_EQ(math::log(0.0f), -kInf);
  EXPECT_EQ(math::log(-0.0f), -kInf);
  EXPECT_EQ(math::log(kInf), kInf);
  EXPECT_EQ(math::log(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_EQ(math::rsqrt(0.0f), kInf);
  EXPECT_EQ(math::rsqrt(kInf), 0.0f);
  EXPECT_EQ(math::tanh(kInf), 1.0f);
  EXPECT_EQ(math::erf(-kInf), -1.0f);
  EXPECT_EQ(math::gelu(kInf), kInf);
  EXPECT_EQ(math::gelu(-kInf), 0.0f);
  for (float (*function)(float) : {+[](float x) { return math::exp(x); },
                                   +[](float x) { return math::log(x); },
                                   +[](float x) { return math::tanh(x); },
                                   +[](float x) { return math::rsqrt(x); },
                                   +[](float x) { return math::erf(x); },
                                   +[](float x) { return math::sigmoid(x); },
                                   +[](float x) { return math::gelu(x); },
                                   +[](float x) { return math::gelu_grad(x); }}) {
    EXPECT_TRUE(std::isnan(function(kNaN)));
    EXPECT_TRUE(std::isnan(function(-kNaN)));
  }
}

TEST(Math, OddFunctionsKeepTheSignOfZero) {
  EXPECT_TRUE(std::signbit(math::tanh(-0.0f)));
  EXPECT_TRUE(std::signbit(math::erf(-0.0f)));
  EXPECT_FALSE(std::signbit(math::tanh(0.0f)));
}

TEST(Math, BoundedFunctionsStayInBoundsAndRise) {
  float last_tanh = -1.0f, last_exp = 0.0f;
  for (int i = -12 * 1024; i < 12 * 1024; ++i) {
    const float x = static_cast<float>(i) * 0x1p-10f;
    EXPECT_GE(math::tanh(x), last_tanh) << x;
    EXPECT_GE(math::exp(x), last_exp) << x;
    last_tanh = math::tanh(x);
    last_exp = math::exp(x);
    ASSERT_LE(last_tanh, 1.0f);
    ASSERT_LE(std::fabs(math::erf(x)), 1.0f);
  }
}

TEST(Math, DoubleOverloadsAreTheLibrarys) {
  EXPECT_EQ(math::exp(0.3), std::exp(0.3));
  EXPECT_EQ(math::log(0.3), std::log(0.3));
  EXPECT_EQ(math::tanh(0.3), std::tanh(0.3));
  EXPECT_EQ(math::erf(0.3), std::erf(0.3));
  EXPECT_EQ(math::rsqrt(0.25), 2.0);
  for (const double x : {-30.0, -2.0, -0.1, 0.0, 0.7, 5.0, 30.0}) {
    EXPECT_NEAR(math::gelu(x), gelu_textbook(x), 1e-15 * std::fabs(x));
    EXPECT_NEAR(math::gelu_grad(x), gelu_grad_textbook(x), 1e-14);
  }
}

TEST(Cases, FC42_TanhAndGeluFarFromZero) {
  for (const float x : {8.0f, 11.0f, 40.0f, 1e4f}) {
    EXPECT_NEAR(math::tanh(x), std::tanh(static_cast<double>(x)), 0x1p-24);
    EXPECT_NEAR(math::tanh(-x), -std::tanh(static_cast<double>(x)), 0x1p-24);
    EXPECT_EQ(math::gelu(x), x);
    EXPECT_NEAR(math::gelu(-x), 0.0f, 1e-12f);
    EXPECT_TRUE(std::signbit(math::gelu(-x)));
    EXPECT_NEAR(math::gelu_grad(x), 1.0f, 1e-11f);
    EXPECT_NEAR(math::gelu_grad(-x), 0.0f, 1e-11f);
  }
}

/// FNV-1a over the result bits of every 65,537th float; every NaN counts as one.
template <class Function>
uint64_t hash_of_bits(Function&& function) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65537) {
    const float y = function(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    hash = (hash ^ (std::isnan(y) ? 0x7fc00000u : std::bit_cast<uint32_t>(y))) * 0x100000001b3u;
  }
  return hash;
}

TEST(Math, ExpOfNegativeHasTheBitsOfExp) {
  for (uint32_t bits = 0x80000000u; bits <= 0xc3020000u; bits += 1021) {  // -0 to -130
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(math::detail::exp_of_negative(x)),
              std::bit_cast<uint32_t>(math::exp(x)))
        << x;
  }
  EXPECT_TRUE(std::isnan(math::detail::exp_of_negative(kNaN)));
}

TEST(Math, BitsAreTheRecordedOnes) {
  EXPECT_EQ(hash_of_bits([](float x) { return math::exp(x); }), 0x2a3293a2b0905409u);
  EXPECT_EQ(hash_of_bits([](float x) { return math::log(x); }), 0xf3976ea989e663e7u);
  EXPECT_EQ(hash_of_bits([](float x) { return math::tanh(x); }), 0xbfef6d688ae7b943u);
  EXPECT_EQ(hash_of_bits([](float x) { return math::rsqrt(x); }), 0xa23dd7b3d932bbcdu);
  EXPECT_EQ(hash_of_bits([](float x) { return math::erf(x); }), 0xced8de616955f010u);
  EXPECT_EQ(hash_of_bits([](float x) { return math::gelu(x); }), 0xa84e3490373476f9u);
  EXPECT_EQ(hash_of_bits([](float x) { return math::gelu_grad(x); }), 0xbe7c1860de44468bu);
}

}  // namespace
}  // namespace halftone
