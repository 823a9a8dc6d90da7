// The CPU's GEMM against products in double: every transposition, format, size, epilogue and
// scaling, with tolerances derived from the length of the sum; and exactly, where the order of
// addition is promised.
#include "ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/reduce.h"
#include "tests/support/bits.h"
#include "tests/support/close.h"
#include "tests/support/gemm_case.h"

namespace halftone {
namespace {

using testing::GemmCase;
using testing::GemmSpec;
using testing::summed;

const Device kCpu{};

/// Runs the case and compares every output with the double reference. A sum of K terms is off by at
/// most K roundings of the sum of magnitudes; the epilogue adds a few roundings of what it adds,
/// and no activation is steeper than 1.13.
void expect_close(const GemmSpec& spec) {
  GemmCase c(spec);
  gemm(c.problem, kCpu);
  const DType sum = spec.d == DType::f64 ? DType::f64 : DType::f32;
  for (int64_t i = 0; i < spec.batch; ++i) {
    for (int64_t m = 0; m < spec.M; ++m) {
      for (int64_t n = 0; n < spec.N; ++n) {
        const GemmCase::Product product = c.product(i, m, n);
        double pre = 0;
        const double expected = c.finish(product.value, i, m, n, &pre);
        const double magnitude =
            1.13 * (product.magnitude + 10);  // the epilogue's own terms are below 10
        ASSERT_TRUE(close(c.d.get(i, m, n), expected, summed(spec.K + 16, magnitude, sum, spec.d)))
            << "D(" << i << ", " << m << ", " << n << ")";
        if (spec.pre_activation) {
          ASSERT_TRUE(close(c.pre.get(i, m, n), pre, summed(spec.K + 2, magnitude, sum, spec.d)))
              << "pre-activation (" << i << ", " << m << ", " << n << ")";
        }
      }
    }
  }
  EXPECT_TRUE(c.d.gaps_intact());
  EXPECT_TRUE(!spec.pre_activation || c.pre.gaps_intact());
}

TEST(Gemm, HandComputedProduct) {
  const float a[] = {1, 2, 3, 4, 5, 6};   // [2, 3]
  const float b[] = {1, 0, 2, 1, -1, 3};  // [3, 2]
  const float bias[] = {10, 20};
  float d[4];
  GemmProblem p{.M = 2, .N = 2, .K = 3};
  p.a = {.data = a, .stride = 3};
  p.b = {.data = b, .stride = 2};
  p.d = d;
  p.d_stride = 2;
  p.epilogue.bias = bias;
  gemm(p, kCpu);
  EXPECT_EQ(d[0], 12);
  EXPECT_EQ(d[1], 31);
  EXPECT_EQ(d[2], 18);
  EXPECT_EQ(d[3], 43);
}

constexpr Format kE3M4{3, 4, Specials::nan_only};
constexpr Format kE5M12{5, 12, Specials::nan_only};  // more than 8 bits: stored as FP32

TEST(Gemm, TranspositionsAndSizesMatchDouble) {
  for (const int64_t M : {1, 2, 7, 48, 131}) {
    for (const int64_t N : {1, 4, 13, 47, 48, 49, 97}) {
      for (const int64_t K : {0, 1, 3, 31, 255, 256, 257}) {
        for (const int layout : {0, 1, 2, 3}) {
          SCOPED_TRACE(::testing::Message() << M << "x" << N << "x" << K << " layout " << layout);
          expect_close({.M = M,
                        .N = N,
                        .K = K,
                        .a_transposed = layout / 2 == 1,
                        .b_transposed = layout % 2 == 1,
                        .row_gap = 3});
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
  }
}

TEST(Gemm, FormatsScalesAndBatchesMatchDouble) {
  for (const Format& format :
       {kFp32, kTf32, kBf16, kFp16, kE4M3, kE5M2, kE2M1, kE2M3, kE3M4, kE5M12}) {
    for (const int layout : {0, 1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << to_string(format) << " layout " << layout);
      GemmSpec spec{.M = 19, .N = 50, .K = 300, .batch = 3, .a = format, .b = format, .row_gap = 5};
      spec.a_transposed = layout / 2 == 1;
      spec.b_transposed = layout % 2 == 1;
      spec.broadcast_b = layout == 2;
      spec.group = std::array{0, 1, 1, 3}[static_cast<size_t>(layout)];
      expect_close(spec);
      spec.a_block_mn = 1;
      spec.b_block_mn = 128;
      spec.a_block_k = spec.b_block_k = 128;
      expect_close(spec);
      spec.b = kE4M3;
      spec.a_block_k = 16;
      spec.promote = 96;
      expect_close(spec);
      spec.a_block_k = spec.b_block_k = GemmScales::kWhole;
      expect_close(spec);
    }
  }
}

TEST(Gemm, EpiloguesMatchDouble) {
  for (const DType d : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
      for (int bits = 0; bits < 32; ++bits) {
        GemmSpec spec{.M = 21, .N = 300, .K = 40, .batch = 2, .d = d, .row_gap = 1};
        spec.activation = activation;
        spec.bias = bits & 1;
        spec.residual = bits & 2;
        spec.pre_activation = (bits & 12) == 4;
        spec.gradient = (bits & 12) == 8 && activation != Activation::none;
        spec.accumulate = (bits & 16) && (d == DType::f32 || d == DType::f64);
        spec.bias_dtype = d;
        SCOPED_TRACE(::testing::Message()
                     << name_of(d) << " activation " << int(activation) << " options " << bits);
        expect_close(spec);
      }
    }
  }
}

TEST(Gemm, ColumnSumsAreTheColumnTreeOfWhatWasStored) {
  for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t M : {1, 128, 129, 300}) {
      GemmCase c({.M = M, .N = 70, .K = 9, .d = d, .row_gap = 2, .column_sums = true});
      gemm(c.problem, kCpu);
      std::vector<float> expected(70);
      column_sum(
          M,
          70,
          [&](int64_t m, int64_t n) { return static_cast<float>(c.d.get(0, m, n)); },
          expected.data());
      EXPECT_TRUE(testing::same_bits(c.column_sums, expected));
    }
  }
}

TEST(Gemm, Tf32OperandsAreRoundedToNearestEven) {
  std::vector<float> x;
  for (uint32_t high = 0; high < 1u << 16; high += 3) {  // signs, exponents, upper fraction bits
    for (const uint32_t low : {0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const float one = 1.0f;
  std::vector<float> d(x.size());
  GemmProblem p;
  p.M = std::ssize(x);
  p.N = p.K = 1;
  p.a = {.data = x.data(), .format = kTf32, .stride = 1};
  p.b = {.data = &one, .format = kTf32, .stride = 1};
  p.d = d.data();
  p.d_stride = 1;
  gemm(p, kCpu);
  for (size_t i = 0; i < x.size(); ++i) {
    const float expected = round_to(kTf32, x[i]);
    ASSERT_TRUE(d[i] == expected || (std::isnan(d[i]) && std::isnan(expected)))
        << std::hexfloat << x[i] << " gave " << d[i] << ", expected " << expected;
  }
}

TEST(Gemm, NonFiniteValuesReachTheirRowsAndColumnsAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Accumulator acc : {Accumulator::fp32, Accumulator::hopper16}) {
    GemmCase c({.M = 5, .N = 60, .K = 40, .a = kBf16, .b = kBf16, .acc = acc});
    c.a.set(0, 1, 7, std::nan(""));
    c.a.set(0, 2, 3, inf);
    c.b.set(0, 3, 11, 0.0f);  // inf * 0
    gemm(c.problem, kCpu);
    for (int64_t n = 0; n < 60; ++n) {
      EXPECT_TRUE(std::isfinite(c.d.get(0, 0, n)));
      EXPECT_TRUE(std::isnan(c.d.get(0, 1, n)));
      EXPECT_TRUE(n == 11 ? std::isnan(c.d.get(0, 2, n)) : std::isinf(c.d.get(0, 2, n)));
      EXPECT_TRUE(std::isfinite(c.d.get(0, 4, n)));
    }
  }
}

TEST(Gemm, OutputIsNotReadUnlessItAccumulates) {
  for (const Accumulator acc : {Accumulator::fp32, Accumulator::ampere16}) {
    GemmCase c({.M = 3, .N = 5, .K = 0, .a = kFp16, .b = kFp16, .acc = acc});  // D starts as NaN
    gemm(c.problem, kCpu);
    for (int64_t n = 0; n < 5; ++n) {
      EXPECT_EQ(c.d.get(0, 2, n), 0.0);
    }
  }
}

template <class Change>
void expect_refused(Change change, const std::string& words) {
  GemmCase c({.M = 4, .N = 6, .K = 8});
  change(c.problem);
  try {
    gemm(c.problem, kCpu);
    FAIL() << "not refused; expected: " << words;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("gemm: ", 0), 0u) << error.what();
  }
}

TEST(Gemm, MalformedProblemsAreRefused) {
  expect_refused([](GemmProblem& p) { p.M = -1; }, "must not be negative; they are -1, 6, 8 and 1");
  expect_refused([](GemmProblem& p) { p.a.data = nullptr; }, "A has no data");
  expect_refused([](GemmProblem& p) { p.a.stride = 7; },
                 "A is stored as [4, 8], so its row stride must be at least 8; it is 7");
  expect_refused([](GemmProblem& p) { p.b.transposed = true; },
                 "B (transposed) is stored as [6, 8]");
  expect_refused([](GemmProblem& p) { p.d = nullptr; }, "D has no data");
  expect_refused([](GemmProblem& p) { p.d_stride = 5; }, "must be at least 6; it is 5");
  expect_refused([](GemmProblem& p) { p.d_dtype = DType::u8; }, "D has dtype u8");
  expect_refused([](GemmProblem& p) { p.d_dtype = DType::f64, p.a.format = kBf16; },
                 "its format is bf16");
  expect_refused([](GemmProblem& p) { p.d_dtype = DType::bf16, p.accumulate = true; },
                 "needs D in f32, it is bf16");
  expect_refused([](GemmProblem& p) { p.batch = 2, p.d_batch_stride = 0; }, "d_batch_stride is 0");
  expect_refused([](GemmProblem& p) { p.batch = 3, p.group = 2; },
                 "groups of 2 matrices do not divide a batch of 3");
  expect_refused([](GemmProblem& p) { p.batch = 2, p.group = 1, p.d_batch_stride = 24; },
                 "d_group_stride is 0");
  expect_refused([](GemmProblem& p) { p.group = 1, p.a.batch_stride = 32, p.a.group_stride = 33; },
                 "groups of A lie 33 elements apart, expected a multiple of the batch stride, 32");
  expect_refused([](GemmProblem& p) { p.promote = 24; },
                 "promote is 24, expected 0 or a multiple of 16");
  expect_refused([](GemmProblem& p) { p.epilogue.gradient_of = p.d; }, "whose derivative");
  expect_refused(
      [](GemmProblem& p) {
        p.epilogue = {.activation = Activation::relu, .pre_activation = p.d, .gradient_of = p.d};
      },
      "exclude each other");
  expect_refused([](GemmProblem& p) { p.epilogue.column_sums = p.d, p.batch = 2; },
                 "column sums need batch = 1");
  expect_refused([](GemmProblem& p) { p.acc = Accumulator::hopper16; },
                 "acc=hopper16 takes 16-bit, tf32 and narrower operands; these are fp32 and fp32");
  expect_refused(
      [](GemmProblem& p) { p.acc = Accumulator::hopper8, p.a.format = p.b.format = kBf16; },
      "acc=hopper8 takes e4m3 and e5m2");
  expect_refused([](GemmProblem& p) { p.acc = Accumulator::fp16, p.a.format = p.b.format = kBf16; },
                 "acc=fp16 takes fp16");
  const float scales[] = {1};
  expect_refused([&](GemmProblem& p) { p.a.scales = {.data = scales, .block_k = 24}; },
                 "scales of A change every 24 of K");
  expect_refused([&](GemmProblem& p) { p.b.scales = {.data = scales, .block_mn = 0}; },
                 "scales of B");
}

TEST(Gemm, KernelsAreRefusedByName) {
  GemmCase c({.M = 4, .N = 6, .K = 8});
  EXPECT_NO_THROW(gemm(c.problem, kCpu, "eigen"));
  EXPECT_THROW(gemm(c.problem, kCpu, "emulated"), std::invalid_argument);
  EXPECT_THROW(gemm(c.problem, kCpu, "wgmma"), std::invalid_argument);
}

TEST(Gemm, ComputeFormatHoldsBothOperands) {
  EXPECT_EQ(compute_format(kE4M3, kE5M2), kFp16);
  EXPECT_EQ(compute_format(kFp16, kE2M1), kFp16);
  EXPECT_EQ(compute_format(kBf16, kE4M3), kBf16);
  EXPECT_EQ(compute_format(kBf16, kFp16), kTf32);
  EXPECT_EQ(compute_format(kTf32, kBf16), kTf32);
  EXPECT_EQ(compute_format(kFp32, kE4M3), kFp32);
  EXPECT_EQ(compute_format(kE5M12, kE4M3), kFp32);
}

}  // namespace
}  // namespace halftone
