#include "core/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace halftone {
namespace {

// Floats of every exponent, the codes between two of bf16 and fp16 and their neighbours, and the
// special ones.
std::vector<float> interesting_floats() {
  std::vector<float> x = {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, 1e-45f, -1e-45f};
  for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0xff812345u}) {
    x.push_back(std::bit_cast<float>(nan));
  }
  for (uint32_t high = 0; high < 1u << 16; ++high) {
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
    x.push_back(decode(kFp16, high));
    x.push_back(static_cast<float>(decode_double(kFp16, high) * (1 + 0x1p-11)));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  return x;
}

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

// NaN bits of a decoded value are not promised.
bool same(float a, float b) { return std::isnan(b) ? std::isnan(a) : bits_of(a) == bits_of(b); }

TEST(Convert, ScalarsEqualTheCodec) {
  for (const float x : interesting_floats()) {
    ASSERT_EQ(to_bf16(x).bits, encode(kBf16, x)) << std::hexfloat << x;
    ASSERT_EQ(to_half(x).bits, encode(kFp16, x)) << std::hexfloat << x;
    ASSERT_EQ(from_float<BFloat16>(x).bits, to_bf16(x).bits);
    ASSERT_EQ(from_float<Half>(x).bits, to_half(x).bits);
    ASSERT_EQ(bits_of(from_float<float>(x)), bits_of(x));
  }
  for (uint32_t code = 0; code < 1u << 16; ++code) {
    const uint16_t bits = static_cast<uint16_t>(code);
    ASSERT_TRUE(same(to_float(BFloat16{bits}), decode(kBf16, code))) << code;
    ASSERT_TRUE(same(to_float(Half{bits}), decode(kFp16, code))) << code;
  }
}

template <class T>
void check_arrays(Format f) {
  const std::vector<float> x = interesting_floats();
  for (const size_t n :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{31}, x.size()}) {
    std::vector<T> y(n + 1, T{0xa5a5});  // one behind the end, that must stay
    convert(x.data(), n, y.data());
    ASSERT_EQ(y[n].bits, 0xa5a5);
    std::vector<float> back(n + 1, -7.0f);
    convert(y.data(), n, back.data());
    ASSERT_EQ(back[n], -7.0f);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(y[i].bits, encode(f, x[i])) << std::hexfloat << x[i];
      ASSERT_TRUE(same(back[i], decode(f, y[i].bits))) << y[i].bits;
    }
  }
}

TEST(Convert, ArraysEqualTheCodec) {
  check_arrays<BFloat16>(kBf16);
  check_arrays<Half>(kFp16);
}

TEST(Convert, DecodesEveryCodeOfEveryNarrowFormat) {
  std::vector<Format> formats = {kE4M3, kE5M2, kE3M2, kE2M3, kE2M1};
  for (int exponent = 1; exponent <= 7; ++exponent) {
    for (int mantissa = 0; exponent + mantissa <= 7; ++mantissa) {
      for (const Specials specials : {Specials::ieee, Specials::nan_only, Specials::finite}) {
        formats.push_back({static_cast<int8_t>(exponent), static_cast<int8_t>(mantissa), specials});
      }
    }
  }
  for (const Format f : formats) {
    const size_t n = size_t{1} << f.bits();
    std::vector<uint8_t> codes(n);
    std::iota(codes.begin(), codes.end(), uint8_t{0});
    for (const float scale : {1.0f, 0.3f, 0x1p-126f, 0x1p127f}) {
      std::vector<float> y(n + 1, -7.0f);
      decode_scaled(f, codes.data(), scale, n, y.data());
      ASSERT_EQ(y[n], -7.0f);
      for (size_t code = 0; code < n; ++code) {
        ASSERT_TRUE(same(y[code], decode(f, static_cast<uint32_t>(code)) * scale))
            << "E" << int{f.exponent_bits} << " M" << int{f.mantissa_bits} << " specials "
            << static_cast<int>(f.specials) << " code " << code << " scale " << scale;
      }
    }
  }
}

TEST(Convert, ScaledArraysEqualTheCodecInEveryMode) {
  const std::vector<float> all = interesting_floats();
  std::mt19937 random(2);
  std::vector<float> x;
  std::vector<uint32_t> draws;
  for (size_t i = 0; i < all.size(); i += 3) {
    x.push_back(all[i]);
    draws.push_back(static_cast<uint32_t>(random()));
  }
  const size_t n = x.size();
  const float r = 0.3f;
  for (const char* name :
       {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e3m4", "e4m3i", "tf32", "bf16", "e5m12", "e8m5"}) {
    const Format f = parse_format(name);
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::zero}) {
      for (const Overflow overflow : {Overflow::standard, Overflow::saturate, Overflow::ieee}) {
        const RoundingMode mode{rounding, overflow, draws.data()};
        std::vector<float> y(n + 1, -7.0f);
        round_scaled(f, x.data(), r, n, y.data(), mode);
        std::vector<uint8_t> codes(n + 1, 0xa5);
        std::vector<float> back(n + 1, -7.0f);
        const bool fits = f.bits() <= 8;
        if (fits) {
          encode_scaled(f, x.data(), r, n, codes.data(), mode);
          decode_scaled(f, codes.data(), 3.0f, n, back.data());
        }
        ASSERT_TRUE(y[n] == -7.0f && codes[n] == 0xa5 && back[n] == -7.0f);
        for (size_t i = 0; i < n; ++i) {
          const uint32_t code = encode(f, x[i] * r, rounding, overflow, draws[i]);
          ASSERT_TRUE(same(y[i], decode(f, code))) << name << std::hexfloat << x[i];
          if (fits) {
            ASSERT_EQ(codes[i], code) << name << std::hexfloat << x[i];
            ASSERT_TRUE(same(back[i], decode(f, code) * 3.0f)) << name << code;
          }
        }
      }
    }
  }
}

TEST(Convert, FormatsThatDoNotFitThrow) {
  float x = 1;
  uint8_t code = 0;
  EXPECT_THROW(encode_scaled(kFp16, &x, 1, 1, &code), std::invalid_argument);
  EXPECT_THROW(decode_scaled(kBf16, &code, 1, 1, &x), std::invalid_argument);
  EXPECT_THROW(encode_scaled(kE8M0, &x, 1, 1, &code), std::invalid_argument);
  EXPECT_THROW(round_scaled(kE8M0, &x, 1, 1, &x), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
