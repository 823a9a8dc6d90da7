// The CPU's GEMM against products in double: every transposition, format, size, epilogue and
// scaling, with tolerances derived from the length of the sum; and exactly, where the order of
// addition is promised.
#include "ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/gemm_case.h"

namespace halftone {
namespace {

using testing::GemmCase;
using testing::GemmSpec;

const Device kCpu{};

/// Half a unit in the last place of a format, relative.
double half_ulp(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-9;
    case DType::f16:
      return 0x1p-12;
    case DType::f64:
      return 0x1p-53;
    default:
      return 0x1p-25;
  }
}

/// Runs the case and compares every output with the double reference. A sum of K terms, each added
/// with a relative error of at most u = 2^-24 (2^-53 in double), is off by at most K u times the
/// sum of magnitudes; the epilogue adds a few roundings of values of the size of its result, and
/// the activations' slope is below 1.13.
void expect_close(const GemmSpec& spec) {
  GemmCase c(spec);
  gemm(c.problem, kCpu);
  const double u = spec.d == DType::f64 ? 0x1p-53 : 0x1p-24;
  double worst = 0;
  for (int64_t i = 0; i < spec.batch; ++i) {
    for (int64_t m = 0; m < spec.M; ++m) {
      for (int64_t n = 0; n < spec.N; ++n) {
        const GemmCase::Product product = c.product(i, m, n);
        double pre = 0;
        const double expected = c.finish(product.value, i, m, n, &pre);
        const double sum_bound = (spec.K + 4) * u * product.magnitude * 1.2;
        const double bound = sum_bound + 16 * u * (1 + std::abs(pre) + std::abs(expected)) +
                             2.01 * half_ulp(spec.d) * std::abs(expected);
        const double error = std::abs(c.d.get(i, m, n) - expected);
        worst = std::max(worst, error / bound);
        ASSERT_TRUE(error <= bound)
            << "D(" << i << ", " << m << ", " << n << ") is " << c.d.get(i, m, n) << ", expected "
            << expected << " within " << bound;
        if (spec.pre_activation) {
          const double off = std::abs(c.pre.get(i, m, n) - pre);
          ASSERT_TRUE(off <= sum_bound + 4 * u * (1 + std::abs(pre)) +
                                 2.01 * half_ulp(spec.d) * std::abs(pre))
              << "pre-activation (" << m << ", " << n << ")";
        }
      }
    }
  }
  EXPECT_TRUE(c.d.gaps_intact(spec.batch));
  if (spec.pre_activation) {
    EXPECT_TRUE(c.pre.gaps_intact(spec.batch));
  }
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

}  // namespace
}  // namespace halftone
