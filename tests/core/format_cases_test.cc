// Troubles with conversions that users of other frameworks reported, those that a codec alone
// decides.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/convert.h"
#include "core/formats.h"

namespace halftone {
namespace {

// E4M3 and E5M2 codes in both overflow modes, from the scalar codec and from the array function.
uint32_t code_of(Format f, float x, Overflow overflow) {
  const uint32_t code = encode(f, x, Rounding::nearest, overflow);
  const std::vector<float> array(9, x);  // a whole vector and a tail
  std::vector<uint8_t> codes(9);
  encode_scaled(f, array.data(), 1.0f, 9, codes.data(), {.overflow = overflow});
  EXPECT_EQ(codes, std::vector<uint8_t>(9, static_cast<uint8_t>(code)));
  EXPECT_EQ(encode(f, static_cast<double>(x), Rounding::nearest, overflow), code);
  return code;
}

TEST(Cases, FC01_E4M3OverflowIsAnExplicitMode) {
  const float x[] = {448, 449, 464, std::nextafter(464.0f, HUGE_VALF), 465, 1000};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(code_of(kE4M3, x[i], Overflow::saturate), 0x7eu) << x[i];
    EXPECT_EQ(code_of(kE4M3, -x[i], Overflow::saturate), 0xfeu) << x[i];
    EXPECT_EQ(code_of(kE4M3, x[i], Overflow::standard), 0x7eu) << x[i];
    const bool stays = i < 3;  // 464 is a tie, and the even code wins
    EXPECT_EQ(code_of(kE4M3, x[i], Overflow::ieee), stays ? 0x7eu : 0x7fu) << x[i];
    EXPECT_EQ(code_of(kE4M3, -x[i], Overflow::ieee), stays ? 0xfeu : 0x7fu) << x[i];
  }
}

TEST(Cases, FC02_InfinityAndNaNInBothModes) {
  for (const Overflow overflow : {Overflow::standard, Overflow::saturate, Overflow::ieee}) {
    EXPECT_TRUE(std::isnan(decode(kE4M3, code_of(kE4M3, NAN, overflow))));
    EXPECT_TRUE(std::isnan(decode(kE5M2, code_of(kE5M2, -NAN, overflow))));
  }
  EXPECT_EQ(code_of(kE4M3, HUGE_VALF, Overflow::saturate), 0x7eu);
  EXPECT_EQ(code_of(kE4M3, -HUGE_VALF, Overflow::saturate), 0xfeu);
  EXPECT_EQ(code_of(kE5M2, HUGE_VALF, Overflow::saturate), 0x7bu);
  EXPECT_EQ(code_of(kE5M2, -HUGE_VALF, Overflow::saturate), 0xfbu);
  EXPECT_TRUE(std::isnan(decode(kE4M3, code_of(kE4M3, HUGE_VALF, Overflow::ieee))));
  EXPECT_EQ(code_of(kE5M2, HUGE_VALF, Overflow::ieee), 0x7cu);
  EXPECT_EQ(code_of(kE5M2, 57344, Overflow::ieee), 0x7bu);
  EXPECT_EQ(code_of(kE5M2, 61439.99f, Overflow::ieee), 0x7bu);
  EXPECT_EQ(code_of(kE5M2, 61440, Overflow::ieee), 0x7cu);  // the tie rounds up
  EXPECT_EQ(code_of(kE5M2, 61440, Overflow::saturate), 0x7bu);
}

TEST(Cases, FC05_TinyNegativesKeepTheirSign) {
  for (const float x : {-0.0f, -1e-10f}) {
    EXPECT_EQ(code_of(kE4M3, x, Overflow::standard), 0x80u);
    EXPECT_EQ(code_of(kE5M2, x, Overflow::standard), 0x80u);
  }
  EXPECT_EQ(encode(kBf16, -0.0f), 0x8000u);
  EXPECT_EQ(encode(kFp16, -0.0f), 0x8000u);
  EXPECT_EQ(encode(kFp16, -1e-10f), 0x8000u);
  EXPECT_EQ(encode(kBf16, -1e-41f), 0x8000u);  // -1e-10 itself is a normal number of bf16
  EXPECT_EQ(std::bit_cast<uint32_t>(decode(kE4M3, 0x80)), 0x80000000u);
}

TEST(Cases, FC07_OneRoundingNotTwo) {
  EXPECT_EQ(round_to(kE4M3, 1.31640625f), 1.375f);
  EXPECT_EQ(round_to(kE4M3, round_to(kBf16, 1.31640625f)), 1.25f);  // what two roundings would give
  EXPECT_EQ(round_to(kE4M3, 1.0625f + 0x1p-14f), 1.125f);
  EXPECT_EQ(round_to(kE4M3, round_to(kFp16, 1.0625f + 0x1p-14f)), 1.0f);
}

TEST(Cases, FC08_NaNStaysNaNInBf16) {
  const auto bf16 = [](uint32_t bits) { return to_bf16(std::bit_cast<float>(bits)).bits; };
  for (const uint32_t nan : {0x7f800001u, 0x7fff8c22u, 0xff800001u}) {
    EXPECT_TRUE(std::isnan(to_float(BFloat16{bf16(nan)})));
    EXPECT_TRUE(bf16(nan) & 0x0040);  // quiet
    EXPECT_EQ(bf16(nan), encode(kBf16, std::bit_cast<float>(nan)));
  }
  EXPECT_EQ(bf16(0x7f7fffff), 0x7f80);
  EXPECT_EQ(bf16(0x7f7f7fff), 0x7f7f);
}

}  // namespace
}  // namespace halftone
