// The reduction trees against a plain reading of their definition, bit for bit.
#include "core/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace halftone {
namespace {

constexpr int64_t kSizes[] = {0, 1, 7, 8, 9, 255, 256, 257, 300, 4095, 4096, 4097, 8192, 50304};

/// Values of mixed sign and magnitude, so that every order of addition rounds differently.
template <class T>
std::vector<T> random_values(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(n);
  for (T& value : values) {
    value = static_cast<T>(normal(generator) * std::exp(3 * normal(generator)));
  }
  return values;
}

/// Adds the pairs `stride` apart inside each run of 2 * stride values, leaving the sums in the
/// lower half of the run.
template <class T>
void pair_up(std::vector<T>& values, size_t stride) {
  for (size_t i = 0; i + stride < values.size(); ++i) {
    if (i / stride % 2 == 0) {
      values[i] += values[i + stride];
    }
  }
}

template <class T>
T plain_chunk(const T* x, int64_t n) {
  std::vector<T> lanes(256, T(0));
  for (int64_t i = 0; i < 4096; ++i) {
    lanes[i % 256] += i < n ? x[i] : T(0);
  }
  for (const size_t stride :
       {4, 2, 1, 128, 64, 32, 16, 8}) {  // groups 16 apart are lanes 128 apart
    pair_up(lanes, stride);
  }
  return lanes[0];
}

template <class T>
T plain_row(const std::vector<T>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  T sum = T(0);
  for (int64_t begin = 0; begin < n; begin += 4096) {
    const T chunk = plain_chunk(x.data() + begin, std::min<int64_t>(n - begin, 4096));
    sum = begin == 0 ? chunk : sum + chunk;
  }
  return sum;
}

template <class T>
std::vector<T> plain_columns(const std::vector<T>& x, int64_t rows, int64_t columns) {
  std::vector<T> sums(columns, T(0));
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t first = 0; first < rows; first += 128) {
      std::vector<T> panel(128, T(0));
      for (int64_t r = first; r < std::min(rows, first + 128); ++r) {
        panel[r - first] = x[r * columns + c];
      }
      for (const size_t stride : {8, 1, 2, 4, 16, 32, 64}) {
        pair_up(panel, stride);
      }
      sums[c] = first == 0 ? panel[0] : sums[c] + panel[0];
    }
  }
  return sums;
}

template <class T>
uint64_t bits_of(T value) {
  return std::bit_cast<std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>(value);
}

template <class T>
class Reduce : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Reduce, Types);

TYPED_TEST(Reduce, RowSumIsTheTree) {
  for (const int64_t n : kSizes) {
    const auto x = random_values<TypeParam>(n, 1);
    const TypeParam sum = row_sum<TypeParam>(n, [&](int64_t i) { return x[i]; });
    EXPECT_EQ(bits_of(sum), bits_of(plain_row(x))) << "n = " << n;
  }
}

TYPED_TEST(Reduce, RowSumOfShortRowsIsTheTree) {
  for (int64_t n = 0; n < 600; ++n) {
    const auto x = random_values<TypeParam>(n, static_cast<uint32_t>(n));
    const TypeParam sum = row_sum<TypeParam>(n, [&](int64_t i) { return x[i]; });
    ASSERT_EQ(bits_of(sum), bits_of(plain_row(x))) << "n = " << n;
  }
}

TYPED_TEST(Reduce, SumsOfNegativeZerosAreTheTrees) {
  for (const int64_t n : {1, 8, 256, 300, 4096}) {
    const std::vector<TypeParam> x(n, TypeParam(-0.0));
    const TypeParam sum = row_sum<TypeParam>(n, [&](int64_t i) { return x[i]; });
    EXPECT_EQ(bits_of(sum), bits_of(plain_row(x))) << n;
  }
  for (const int64_t rows : {1, 8, 16, 17, 64, 127, 128, 200, 256}) {
    const std::vector<TypeParam> x(rows, TypeParam(-0.0));
    TypeParam sum;
    column_sum(
        rows, 1, [&](int64_t r, int64_t) { return x[r]; }, &sum);
    EXPECT_EQ(bits_of(sum), bits_of(plain_columns(x, rows, 1)[0])) << rows;
  }
}

TYPED_TEST(Reduce, FlatSumIsTheTreeOfChunks) {
  for (const int64_t n : {0, 1, 4096, 4097, 300000}) {
    const auto x = random_values<TypeParam>(n, 2);
    std::vector<TypeParam> chunks;
    for (int64_t begin = 0; begin < n; begin += 4096) {
      chunks.push_back(plain_chunk(x.data() + begin, std::min<int64_t>(n - begin, 4096)));
    }
    const TypeParam sum = flat_sum<TypeParam>(n, [&](int64_t i) { return x[i]; });
    EXPECT_EQ(bits_of(sum), bits_of(plain_row(chunks))) << "n = " << n;
  }
}

TYPED_TEST(Reduce, ColumnSumIsTheTree) {
  for (const int64_t columns : {1, 10, 255, 256, 257}) {
    for (const int64_t rows : {0, 1, 2, 9, 15, 16, 17, 33, 64, 100, 127, 128, 129, 400}) {
      const auto x = random_values<TypeParam>(rows * columns, 3);
      std::vector<TypeParam> sums(columns, std::numeric_limits<TypeParam>::quiet_NaN());
      column_sum(
          rows, columns, [&](int64_t r, int64_t c) { return x[r * columns + c]; }, sums.data());
      const auto expected = plain_columns(x, rows, columns);
      for (int64_t c = 0; c < columns; ++c) {
        ASSERT_EQ(bits_of(sums[c]), bits_of(expected[c])) << rows << " x " << columns << ", " << c;
      }
    }
  }
}

TYPED_TEST(Reduce, ThreadsDoNotChangeBits) {
  const int before = num_threads();
  const int64_t rows = 1000, columns = 700;
  const auto x = random_values<TypeParam>(rows * columns, 4);
  std::vector<std::vector<TypeParam>> sums;
  std::vector<TypeParam> flat;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    sums.emplace_back(columns);
    column_sum(
        rows,
        columns,
        [&](int64_t r, int64_t c) { return x[r * columns + c]; },
        sums.back().data());
    flat.push_back(flat_sum<TypeParam>(rows * columns, [&](int64_t i) { return x[i]; }));
  }
  set_num_threads(before);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_EQ(flat[0], flat[1]);
  EXPECT_EQ(flat[0], flat[2]);
}

TYPED_TEST(Reduce, CallsEachElementOnce) {
  for (const int64_t n : kSizes) {
    std::vector<int> calls(n, 0);
    row_sum<TypeParam>(n, [&](int64_t i) { return static_cast<TypeParam>(++calls[i]); });
    EXPECT_EQ(calls, std::vector<int>(n, 1));
    row_max<TypeParam>(n, [&](int64_t i) { return static_cast<TypeParam>(++calls[i]); });
    EXPECT_EQ(calls, std::vector<int>(n, 2));
  }
}

TYPED_TEST(Reduce, NanAndInfinityReachTheSum) {
  const TypeParam inf = std::numeric_limits<TypeParam>::infinity();
  for (const int64_t n : {1, 9, 300, 5000}) {
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      std::vector<TypeParam> x(n, TypeParam(1));
      const auto sum = [&] { return row_sum<TypeParam>(n, [&](int64_t i) { return x[i]; }); };
      const auto largest = [&] { return row_max<TypeParam>(n, [&](int64_t i) { return x[i]; }); };
      x[at] = inf;
      EXPECT_EQ(sum(), inf);
      EXPECT_EQ(largest(), inf);
      x[at] = std::numeric_limits<TypeParam>::quiet_NaN();
      EXPECT_TRUE(std::isnan(sum()));
      EXPECT_TRUE(std::isnan(largest()));
      TypeParam column;
      column_sum(
          n, 1, [&](int64_t r, int64_t) { return x[r]; }, &column);
      EXPECT_TRUE(std::isnan(column));
    }
  }
}

TYPED_TEST(Reduce, MaximumFindsTheLargestAnywhere) {
  EXPECT_EQ(row_max<TypeParam>(0, [](int64_t) { return TypeParam(1); }),
            -std::numeric_limits<TypeParam>::infinity());
  for (const int64_t n : {1, 31, 32, 33, 100}) {
    for (int64_t at = 0; at < n; ++at) {
      EXPECT_EQ(row_max<TypeParam>(n, [&](int64_t i) { return TypeParam(i == at ? -1 : -2); }),
                TypeParam(-1));
    }
  }
}

TYPED_TEST(Reduce, MaximumOfZerosAndNans) {
  const TypeParam zero = 0, nan = std::numeric_limits<TypeParam>::quiet_NaN();
  EXPECT_FALSE(std::signbit(maximum(zero, -zero)));
  EXPECT_FALSE(std::signbit(maximum(-zero, zero)));
  EXPECT_TRUE(std::signbit(maximum(-zero, -zero)));
  EXPECT_TRUE(std::isnan(maximum(nan, zero)));
  EXPECT_TRUE(std::isnan(maximum(zero, nan)));
  EXPECT_EQ(maximum(TypeParam(2), TypeParam(-3)), TypeParam(2));
}

TEST(Cases, FC51_SumOfSeventyThousandOnes) {
  const int64_t n = 70000;
  EXPECT_EQ(row_sum<float>(n, [](int64_t) { return 1.0f; }), 70000.0f);
  EXPECT_EQ(flat_sum<float>(n, [](int64_t) { return 1.0f; }), 70000.0f);
  EXPECT_EQ(row_sum<float>(n, [](int64_t) { return 1.0f; }) / n, 1.0f);
  std::vector<float> bias_gradient(3);
  column_sum(
      n, 3, [](int64_t, int64_t) { return 1.0f; }, bias_gradient.data());
  EXPECT_EQ(bias_gradient, std::vector<float>(3, 70000.0f));
}

// The same sums on every compiler, instruction set and number of threads: exact inputs, recorded
// bits.
TEST(Cases, FC106_ReductionBitsAreTheRecordedOnes) {
  const auto value = [](int64_t i) {  // 20 random bits times a power of two
    const uint32_t hash = static_cast<uint32_t>(i) * 2654435761u;
    return std::ldexp(static_cast<float>(static_cast<int32_t>(hash) >> 12),
                      -static_cast<int>(hash % 13));
  };
  std::vector<float> columns(2);
  column_sum(
      1000, 2, [&](int64_t r, int64_t c) { return value(2 * r + c); }, columns.data());
  EXPECT_EQ(bits_of(row_sum<float>(50304, value)), 0xc91ed53du);
  EXPECT_EQ(bits_of(flat_sum<float>(1000000, value)), 0xc9914569u);
  EXPECT_EQ(bits_of(columns[0]), 0xc97b1a07u);
  EXPECT_EQ(bits_of(columns[1]), 0x48c46e74u);
}

}  // namespace
}  // namespace halftone
