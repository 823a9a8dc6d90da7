#include "core/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/formats.h"

namespace halftone {
namespace {

void expect_words(PhiloxBlock block, std::vector<uint32_t> expected) {
  EXPECT_EQ(std::vector<uint32_t>(block.word, block.word + 4), expected);
}

// Known answers of Salmon et al. (the Random123 distribution, philox4x32 with 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  const uint32_t ones = 0xffffffffu;
  expect_words(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}),
               {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  expect_words(philox4x32_10({{ones, ones, ones, ones}}, {{ones, ones}}),
               {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  expect_words(philox4x32_10({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
                             {{0xa4093822u, 0x299f31d0u}}),
               {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST(Philox, ElementsMapToCounterWordsAsDocumented) {
  const RandomStream stream{philox_key(7, "blocks.0.mlp.dropout"), 11, 3};
  const uint64_t element = (uint64_t{5} << 34) + 4 * 9 + 2;
  EXPECT_EQ(stream.draw(element), philox4x32_10({{9, 5, 3, 11}}, stream.key).word[2]);
}

TEST(Philox, FilledDrawsEqualSingleOnes) {
  const RandomStream stream{philox_key(1, "x"), 2, 0};
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{3}, (uint64_t{1} << 34) - 70}) {
    for (const size_t n : {0, 1, 2, 3, 4, 5, 127, 128, 129, 131, 400}) {
      std::vector<uint32_t> draws(n + 1, 0xa5a5a5a5u);
      fill_draws(stream, first, n, draws.data());
      EXPECT_EQ(draws[n], 0xa5a5a5a5u);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(draws[i], stream.draw(first + i)) << first << " + " << i;
      }
    }
  }
}

// Pins the hash: stored runs resume with the same draws.
TEST(Philox, KeysDependOnSeedAndPurpose) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const char* purpose : {"", "a", "b", "dropout", "blocks.0.dropout", "blocks.1.dropout"}) {
      keys.insert(std::bit_cast<uint64_t>(philox_key(seed, purpose)));
    }
  }
  EXPECT_EQ(keys.size(), 600u);
  EXPECT_EQ(std::bit_cast<uint64_t>(philox_key(1, "dropout")), 0x06051be32dcb10f2u);
}

TEST(Philox, UniformStaysBelowOne) {
  EXPECT_EQ(uniform(0), 0.0f);
  EXPECT_EQ(uniform(0xffffffffu), 1.0f - 0x1p-24f);
  const RandomStream stream{philox_key(3, "uniform")};
  std::vector<uint32_t> draws(100000);
  fill_draws(stream, 0, draws.size(), draws.data());
  double sum = 0;
  for (const uint32_t draw : draws) {
    sum += uniform(draw);
  }
  EXPECT_NEAR(sum / draws.size(), 0.5, 5 * std::sqrt(1.0 / 12 / draws.size()));
}

TEST(Cases, FC11_StochasticRoundingKeepsWhatIsExact) {
  const RandomStream stream{philox_key(11, "rounding")};
  const auto rounded = [&](float x, uint64_t i) {
    return decode(kBf16,
                  encode(kBf16, x, Rounding::stochastic, Overflow::standard, stream.draw(i)));
  };
  const int n = 100000;
  int up = 0;
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    ASSERT_EQ(rounded(HUGE_VALF, i), HUGE_VALF);
    ASSERT_TRUE(std::isnan(rounded(NAN, i)));
    ASSERT_EQ(rounded(1.0f, i), 1.0f);
    const float y = rounded(1.0f + 0x1p-9f, i);
    ASSERT_TRUE(y == 1.0f || y == 1.0f + 0x1p-7f);
    ASSERT_EQ(y, rounded(1.0f + 0x1p-9f, i));
    up += y > 1.0f;
    sum += y;
  }
  EXPECT_NEAR(double(up) / n, 0.25, 0.007);
  EXPECT_NEAR(sum / n, 1.0 + 0x1p-9, 5 * 0x1p-7 * std::sqrt(0.25 * 0.75 / n));
}

}  // namespace
}  // namespace halftone
