#include "core/scales.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace halftone {
namespace {

constexpr ScaleRule kRules[] = {
    ScaleRule::fp32, ScaleRule::e8m0, ScaleRule::e8m0_ceil, ScaleRule::e8m0_floor};

// The rules in their own words, in double: amax / max(format) is compared with powers of two,
// logarithms come from frexp.
double rule_in_words(ScaleRule rule, Format f, float amax) {
  const float s0 = static_cast<float>(
      double{amax} / f.max_finite());  // one rounding: the quotient of floats in double
  const double s = std::max(s0, 0x1p-126f);
  int exponent = 0;
  const double fraction =
      std::frexp(amax, &exponent);  // amax = fraction * 2^exponent, fraction in [1/2, 1)
  const int emax = std::ilogb(f.max_finite());
  const auto clamped = [](double power) { return std::min(std::max(power, 0x1p-126), 0x1p127); };
  switch (rule) {
    case ScaleRule::fp32:
      return s;
    case ScaleRule::e8m0: {
      double power = 0x1p-126;
      while (power < s) {
        power *= 2;
      }
      return clamped(power);
    }
    case ScaleRule::e8m0_ceil:
      return amax == 0 ? 0x1p-126 : clamped(std::ldexp(1.0, exponent - (fraction == 0.5) - emax));
    case ScaleRule::e8m0_floor:
      return amax == 0 ? 0x1p-126 : clamped(std::ldexp(1.0, exponent - 1 - emax));
    case ScaleRule::e4m3:
      break;
  }
  return NAN;
}

TEST(Scales, FollowTheirRulesAcrossTheRange) {
  for (const char* name :
       {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e3m4", "e1m1i", "fp16", "bf16"}) {
    const Format f = parse_format(name);
    std::vector<float> values = {
        0, 1e-45f, 1e-40f, 1e-37f, 1e-36f, 1.3e-36f, 1e-30f, FLT_MIN, FLT_MAX};
    for (int exponent = -140; exponent < 127; ++exponent) {
      for (const double fraction :
           {1.0, 1.0 + 0x1p-23, 1.3, 1.5, 1.75, 1.75 + 0x1p-23, 1.875, 2.0 - 0x1p-23}) {
        values.push_back(static_cast<float>(std::ldexp(fraction, exponent)));
      }
    }
    for (const float amax : values) {
      for (const ScaleRule rule : kRules) {
        const float s = block_scale(rule, f, amax);
        ASSERT_EQ(s, rule_in_words(rule, f, amax)) << name << " " << int(rule) << " of " << amax;
        ASSERT_EQ(reciprocal_scale(s), static_cast<float>(1.0 / double{s}));
        ASSERT_TRUE(std::isfinite(amax * reciprocal_scale(s)));
        if (rule != ScaleRule::fp32) {
          ASSERT_EQ(decode(kE8M0, e8m0_code(s)), s);
          ASSERT_EQ(encode(kE8M0, s), e8m0_code(s));
        }
      }
    }
  }
}

TEST(Scales, NonFiniteBlocksGiveNaN) {
  for (const float amax : {HUGE_VALF, NAN}) {
    for (const ScaleRule rule : kRules) {
      const float s = block_scale(rule, kE4M3, amax);
      EXPECT_TRUE(std::isnan(s) && std::isnan(reciprocal_scale(s)));
      EXPECT_EQ(e8m0_code(s), 255);
    }
    EXPECT_TRUE(std::isnan(nvfp4_tensor_scale(kE2M1, amax)));
    EXPECT_EQ(nvfp4_block_code(kE2M1, amax, 1.0f), 0x7f);
    EXPECT_EQ(nvfp4_block_code(kE2M1, 1.0f, NAN), 0x7f);
    EXPECT_TRUE(std::isnan(nvfp4_block_scale(0x7f, 1.0f)));
  }
  EXPECT_TRUE(std::isnan(block_scale(ScaleRule::e4m3, kE2M1, 1.0f)));  // has two levels, not one
}

TEST(Scales, Nvfp4HasTwoLevels) {
  // Tensor amax 2688 = 448 * 6: g = 1. A block with amax 6 b for a number b of E4M3 has exactly
  // that scale.
  EXPECT_EQ(nvfp4_tensor_scale(kE2M1, 2688.0f), 1.0f);
  for (uint32_t code = 1; code < 0x7f; ++code) {
    const float b = decode(kE4M3, code);
    EXPECT_EQ(nvfp4_block_code(kE2M1, 6 * b, 1.0f), code);
    EXPECT_EQ(nvfp4_block_scale(static_cast<uint8_t>(code), 1.0f), b);
    EXPECT_EQ(nvfp4_block_scale(static_cast<uint8_t>(code), 0.7f), b * 0.7f);
  }
  const float g = nvfp4_tensor_scale(kE2M1, 1.7f);
  EXPECT_EQ(g, 1.7f / 2688.0f);
  EXPECT_EQ(nvfp4_block_code(kE2M1, 1.7f, g),
            0x7e);  // the block that holds the tensor's amax gets 448
  EXPECT_EQ(nvfp4_block_code(kE2M1, 0.3f, g), encode(kE4M3, 0.3f / 6.0f / g));
  // Zeros: the smallest scales, and exact zeros.
  EXPECT_EQ(nvfp4_tensor_scale(kE2M1, 0.0f), 0x1p-126f);
  EXPECT_EQ(nvfp4_block_code(kE2M1, 0.0f, g), 1);
  EXPECT_EQ(nvfp4_block_code(kE2M1, 0.0f, 0x1p-126f), 1);
  EXPECT_EQ(nvfp4_block_scale(1, 0x1p-126f), 0x1p-126f);
}

TEST(Scales, MaxMagnitudeKeepsNaN) {
  EXPECT_EQ(max_magnitude(-3.0f, 2.0f), 3.0f);
  EXPECT_EQ(max_magnitude(-HUGE_VALF, FLT_MAX), HUGE_VALF);
  EXPECT_TRUE(std::isnan(max_magnitude(NAN, HUGE_VALF)));
  EXPECT_TRUE(std::isnan(max_magnitude(HUGE_VALF, -NAN)));
}

// A block of zeros under every rule: payload 0, a finite scale above 0, exact 0 back.
TEST(Cases, FC27_ZeroBlockStaysZero) {
  for (const ScaleRule rule : kRules) {
    const float s = block_scale(rule, kE4M3, 0.0f);
    EXPECT_EQ(s, 0x1p-126f);
    const uint32_t code = encode(kE4M3, 0.0f * reciprocal_scale(s));
    EXPECT_EQ(code, 0u);
    EXPECT_EQ(std::bit_cast<uint32_t>(decode(kE4M3, code) * s), 0u);
  }
}

TEST(Cases, FC34_ZeroBlockNeedsNoLogarithm) {
  for (const ScaleRule rule : kRules) {
    EXPECT_EQ(block_scale(rule, kE2M1, 0.0f), 0x1p-126f);
    EXPECT_EQ(block_scale(rule, kE5M2, -0.0f * -1.0f), 0x1p-126f);
  }
}

TEST(Cases, FC28_TinyBlocksStayFinite) {
  for (const float amax : {1e-40f, 1e-37f, 1e-36f, 1.3e-36f, 1e-30f}) {
    for (const ScaleRule rule : kRules) {
      const float s = block_scale(rule, kE4M3, amax), r = reciprocal_scale(s);
      ASSERT_TRUE(std::isfinite(s) && std::isfinite(r) && s > 0 && s <= 0x1p127f);
      const float back = decode(kE4M3, encode(kE4M3, amax * r)) * s;
      ASSERT_TRUE(std::isfinite(back));
      const float quantum = std::max(back * 0x1p-3f, s * 0x1p-9f);
      EXPECT_LE(std::fabs(back - amax), quantum) << int(rule) << " " << amax;
    }
  }
}

TEST(Cases, FC29_ScaleBytesDecodeByBits) {
  const auto bits = [](uint32_t byte) { return std::bit_cast<uint32_t>(decode(kE8M0, byte)); };
  EXPECT_EQ(bits(0), 0x00400000u);
  EXPECT_EQ(bits(1), 0x00800000u);
  EXPECT_EQ(bits(127), 0x3f800000u);
  EXPECT_EQ(bits(254), 0x7f000000u);
  EXPECT_TRUE(std::isnan(decode(kE8M0, 255)));
  for (uint32_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(e8m0_code(decode(kE8M0, byte)), byte);
  }
}

#ifdef __SSE2__
TEST(Cases, FC29_HoldsWhereTheMachineFlushesToZero) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush results, and read subnormals as zero
  const uint32_t smallest = std::bit_cast<uint32_t>(decode(kE8M0, 0));
  const uint8_t code = e8m0_code(decode(kE8M0, 0));
  const uint32_t subnormal = encode(parse_format("e8m7"), std::bit_cast<float>(smallest));
  const float s = block_scale(ScaleRule::fp32, kE4M3, 1e-40f);
  _mm_setcsr(before);
  EXPECT_EQ(smallest, 0x00400000u);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(subnormal, 0x40u);
  EXPECT_EQ(s, 0x1p-126f);
}
#endif

TEST(Cases, FC31_EachRuleHasItsOwnScale) {
  const float amax[] = {150, 448, 449, 957};
  const int floor[] = {126, 127, 127, 128}, ceil[] = {127, 128, 128, 129},
            rceil[] = {126, 127, 128, 129};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(e8m0_code(block_scale(ScaleRule::e8m0_floor, kE4M3, amax[i])), floor[i]);
    EXPECT_EQ(e8m0_code(block_scale(ScaleRule::e8m0_ceil, kE4M3, amax[i])), ceil[i]);
    EXPECT_EQ(e8m0_code(block_scale(ScaleRule::e8m0, kE4M3, amax[i])), rceil[i]);
  }
  const auto stored = [](ScaleRule rule) {
    const float s = block_scale(rule, kE4M3, 957);
    return decode(kE4M3, encode(kE4M3, 957 * reciprocal_scale(s))) * s;
  };
  EXPECT_EQ(stored(ScaleRule::e8m0_floor), 896);
  EXPECT_EQ(stored(ScaleRule::e8m0), 960);
}

}  // namespace
}  // namespace halftone
