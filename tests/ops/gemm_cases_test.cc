// The GEMM rows of what goes wrong for users of mixed-precision software, on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/formats.h"
#include "tests/support/close.h"
#include "tests/support/gemm_case.h"

namespace halftone {
namespace {

using testing::GemmCase;
using testing::GemmSpec;

const Device kCpu{};
const std::array kAccumulators = {
    Accumulator::fp32, Accumulator::hopper16, Accumulator::ampere16, Accumulator::hopper8};

/// [M, K] x [K, N] of E4M3 codes.
GemmProblem e4m3_problem(const std::vector<uint8_t>& a,
                         const std::vector<uint8_t>& b,
                         std::vector<float>& d,
                         int64_t M,
                         int64_t N,
                         int64_t K) {
  GemmProblem p{.M = M, .N = N, .K = K};
  p.a = {.data = a.data(), .format = kE4M3, .stride = K};
  p.b = {.data = b.data(), .format = kE4M3, .stride = N};
  p.d = d.data();
  p.d_stride = N;
  return p;
}

TEST(Cases, FC27_ZeroBlocksMultiplyToExactZero) {
  for (const Accumulator acc : kAccumulators) {
    GemmCase c({.M = 20,
                .N = 130,
                .K = 256,
                .a = kE4M3,
                .b = kE4M3,
                .a_block_mn = 1,
                .a_block_k = 128,
                .b_block_mn = 128,
                .b_block_k = 128,
                .acc = acc});
    for (int64_t k = 0; k < 256; ++k) {
      c.a.set(0, 7, k, 0.0, &kE4M3);
    }
    c.a_scales[14] = c.a_scales[15] = 0x1p-126f;  // what the quantiser gives a block of zeros
    GemmCase other({.M = 20,
                    .N = 130,
                    .K = 256,
                    .a = kE4M3,
                    .b = kE4M3,
                    .a_block_mn = 1,
                    .a_block_k = 128,
                    .b_block_mn = 128,
                    .b_block_k = 128,
                    .acc = acc});
    gemm(c.problem, kCpu);
    gemm(other.problem, kCpu);
    for (int64_t m = 0; m < 20; ++m) {
      for (int64_t n = 0; n < 130; ++n) {
        const double expected = m == 7 ? 0.0 : other.d.get(0, m, n);
        ASSERT_EQ(std::bit_cast<uint64_t>(c.d.get(0, m, n)), std::bit_cast<uint64_t>(expected));
      }
    }
  }
}

TEST(Cases, FC35_PaddingAndItsScalesNeverEnterTheProduct) {
  for (const Accumulator acc : kAccumulators) {
    for (const auto& [M, N, K] :
         {std::array<int64_t, 3>{129, 129, 129}, {1, 5, 8193}, {96, 50, 784}}) {
      const GemmSpec spec{.M = M,
                          .N = N,
                          .K = K,
                          .a = kE4M3,
                          .b = kE4M3,
                          .row_gap = 9,
                          .a_block_mn = 1,
                          .a_block_k = 128,
                          .b_block_mn = 128,
                          .b_block_k = 128,
                          .acc = acc};
      GemmCase c(spec);  // the gaps between rows are NaN already
      gemm(c.problem, kCpu);
      GemmCase padded(spec);  // scales with a padded row stride, NaN between them
      const auto poison = [](GemmScales& scales, int64_t rows) {
        std::vector<float> wide(rows * (scales.stride_mn + 3), std::nanf(""));
        for (int64_t r = 0; r < rows; ++r) {
          std::copy_n(scales.data + r * scales.stride_mn,
                      scales.stride_mn,
                      wide.data() + r * (scales.stride_mn + 3));
        }
        scales.stride_mn += 3;
        scales.data = wide.data();
        return wide;
      };
      const auto a_scales = poison(padded.problem.a.scales, M);
      const auto b_scales = poison(padded.problem.b.scales, (N + 127) / 128);
      padded.problem.a.scales.data = a_scales.data();
      padded.problem.b.scales.data = b_scales.data();
      gemm(padded.problem, kCpu);
      for (int64_t m = 0; m < M; ++m) {
        for (int64_t n = 0; n < N; ++n) {
          ASSERT_TRUE(std::isfinite(c.d.get(0, m, n)));
          ASSERT_EQ(c.d.get(0, m, n), padded.d.get(0, m, n));
        }
      }
    }
  }
}

TEST(Cases, FC55_AnySizeOfAnFp8LayerJustWorks) {
  struct Shape {
    int64_t M, N, K;
  };
  // Two are shortened where the trouble is not: it is an M of 50, and one no multiple of 16.
  for (const Shape s : {Shape{1, 10, 784}, {50, 16384, 512}, {2048, 3072, 767}, {4092, 512, 256}}) {
    SCOPED_TRACE(::testing::Message() << s.M << "x" << s.N << "x" << s.K);
    GemmCase c({.M = s.M,
                .N = s.N,
                .K = s.K,
                .a = kE4M3,
                .b = kE4M3,
                .b_transposed = true,
                .a_block_mn = 1,
                .a_block_k = 128,
                .b_block_mn = 128,
                .b_block_k = 128});
    gemm(c.problem, kCpu);
    std::mt19937 rng(3);
    for (int i = 0; i < 300; ++i) {
      const int64_t m = i == 0 ? s.M - 1 : rng() % s.M;
      const int64_t n = i == 0 ? s.N - 1 : rng() % s.N;
      const GemmCase::Product product = c.product(0, m, n);
      ASSERT_TRUE(
          testing::close(c.d.get(0, m, n),
                         product.value,
                         testing::summed(s.K + 8, product.magnitude, DType::f32, DType::f32)));
    }
    for (int64_t m = 0; m < s.M; ++m) {
      for (int64_t n = 0; n < s.N; ++n) {
        ASSERT_TRUE(std::isfinite(c.d.get(0, m, n))) << "not written: (" << m << ", " << n << ")";
      }
    }
  }
}

TEST(Cases, FC56_SmallIntegersAreExactForEveryK) {
  for (const int64_t K : {1, 3, 20, 24, 127, 129, 133, 192, 200, 576, 767}) {
    for (const int layout : {0, 1, 2, 3}) {
      for (const Accumulator acc :
           {Accumulator::fp32, Accumulator::hopper16, Accumulator::ampere16}) {
        GemmCase c({.M = 9,
                    .N = 50,
                    .K = K,
                    .a = kBf16,
                    .b = kFp16,
                    .a_transposed = layout / 2 == 1,
                    .b_transposed = layout % 2 == 1,
                    .row_gap = 1,
                    .acc = acc});
        std::mt19937 rng(static_cast<uint32_t>(K));
        const auto fill = [&](testing::StoredMatrix& matrix) {
          for (int64_t r = 0; r < matrix.rows; ++r) {
            for (int64_t column = 0; column < matrix.columns; ++column) {
              matrix.set(0, r, column, static_cast<int>(rng() % 9) - 4);
            }
          }
        };
        fill(c.a);
        fill(c.b);
        gemm(c.problem, kCpu);
        for (int64_t m = 0; m < 9; ++m) {
          for (int64_t n = 0; n < 50; ++n) {
            int64_t expected = 0;
            for (int64_t k = 0; k < K; ++k) {
              expected +=
                  static_cast<int64_t>(c.a_at(0, m, k)) * static_cast<int64_t>(c.b_at(0, k, n));
            }
            ASSERT_EQ(c.d.get(0, m, n), static_cast<double>(expected))
                << "K = " << K << " layout " << layout;
          }
        }
      }
    }
  }
}

TEST(Cases, FC58_EmptyDimensions) {
  for (const Accumulator acc : {Accumulator::fp32, Accumulator::hopper16}) {
    for (const bool bias : {false, true}) {
      GemmCase c({.M = 4, .N = 6, .K = 0, .a = kBf16, .b = kBf16, .acc = acc, .bias = bias});
      gemm(c.problem, kCpu);
      for (int64_t n = 0; n < 6; ++n) {
        EXPECT_EQ(c.d.get(0, 3, n), bias ? c.bias.get(0, 0, n) : 0.0);
      }
    }
    GemmCase no_rows(
        {.M = 0, .N = 6, .K = 5, .a = kBf16, .b = kBf16, .acc = acc, .column_sums = true});
    gemm(no_rows.problem, kCpu);
    EXPECT_EQ(no_rows.column_sums, std::vector<float>(6, 0.0f)) << "the bias gradient of no rows";
    GemmCase no_columns(
        {.M = 3, .N = 0, .K = 5, .a = kBf16, .b = kBf16, .acc = acc, .column_sums = true});
    EXPECT_NO_THROW(gemm(no_columns.problem, kCpu));
    GemmCase no_batch({.M = 3, .N = 4, .K = 5, .batch = 0, .a = kBf16, .b = kBf16, .acc = acc});
    EXPECT_NO_THROW(gemm(no_batch.problem, kCpu));
  }
}

TEST(Cases, FC60_HopperFp8KeepsThirteenBitsUnlessPromoted) {
  std::vector<uint8_t> a(256), b(256);
  std::vector<float> d(1);
  a[0] = b[0] = static_cast<uint8_t>(encode(kE4M3, 448.0f));
  a[128] = b[128] = static_cast<uint8_t>(encode(kE4M3, 1.0f));
  GemmProblem p = e4m3_problem(a, b, d, 1, 1, 256);
  p.acc = Accumulator::hopper8;
  p.promote = 128;
  gemm(p, kCpu);
  EXPECT_EQ(d[0], 200705.0f);
  p.promote = 0;
  gemm(p, kCpu);
  EXPECT_EQ(d[0], 200704.0f);
  std::swap(a[1], a[128]);  // within one instruction
  std::swap(b[1], b[128]);
  p.promote = 128;
  gemm(p, kCpu);
  EXPECT_NEAR(d[0], 200705.0f, 200704.0f * 0x1p-13f);
  p.acc = Accumulator::fp32;
  gemm(p, kCpu);
  EXPECT_EQ(d[0], 200705.0f);
}

TEST(Cases, FC62_OnesInSixteenBitsAddUpExactly) {
  for (const auto& [format, K] : {std::pair{kBf16, 1024}, std::pair{kFp16, 4096}}) {
    for (const Accumulator acc :
         {Accumulator::fp32, Accumulator::hopper16, Accumulator::ampere16}) {
      const uint16_t one = static_cast<uint16_t>(encode(format, 1.0f));
      const std::vector<uint16_t> ones(16 * K, one);
      std::vector<float> d(16 * 16, std::nanf(""));
      GemmProblem p{.M = 16, .N = 16, .K = K};
      p.a = {.data = ones.data(), .format = format, .stride = K};
      p.b = {.data = ones.data(), .format = format, .stride = 16};
      p.d = d.data();
      p.d_stride = 16;
      p.acc = acc;
      gemm(p, kCpu);
      EXPECT_EQ(d, std::vector<float>(16 * 16, static_cast<float>(K)));
    }
  }
}

TEST(Cases, FC65_Fp32IsNotSilentlyTf32) {
  const float x = 1024.5f;
  const float one = 1.0f;
  float d = 0;
  GemmProblem p{.M = 1, .N = 1, .K = 1};
  p.a = {.data = &x, .stride = 1};
  p.b = {.data = &one, .stride = 1};
  p.d = &d;
  p.d_stride = 1;
  gemm(p, kCpu);
  EXPECT_EQ(d, 1024.5f);
  p.a.format = p.b.format = kTf32;
  gemm(p, kCpu);
  EXPECT_EQ(d, 1024.0f) << "and tf32 is: rounded to nearest even on the way in";

  GemmCase c({.M = 512, .N = 512, .K = 512});
  gemm(c.problem, kCpu);
  double error = 0, norm = 0;
  for (int64_t m = 0; m < 512; m += 7) {
    for (int64_t n = 0; n < 512; ++n) {
      const double expected = c.product(0, m, n).value;
      error += std::pow(c.d.get(0, m, n) - expected, 2);
      norm += expected * expected;
    }
  }
  EXPECT_LE(std::sqrt(error / norm), 5e-7);
}

uint64_t hash_of(const std::vector<float>& values) {  // FNV-1a over the bits
  uint64_t hash = 0xcbf29ce484222325;
  for (const float v : values) {
    hash = (hash ^ std::bit_cast<uint32_t>(v)) * 0x100000001b3;
  }
  return hash;
}

/// The product of fixed pseudo-random operands, without anything the compiler or the C library
/// could do its own way.
uint64_t product_hash(const Format& format, Accumulator acc, bool scaled) {
  constexpr int64_t M = 33, N = 70, K = 700;
  std::mt19937 rng(5);
  const int bytes = format.bits() > 8 ? 2 : 1;
  const auto operand = [&](int64_t elements) {
    std::vector<uint8_t> data(elements * bytes);
    for (int64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(static_cast<int>(rng() % 8191) - 4095) / 512.0f;
      const uint32_t code = encode(format, value);
      std::memcpy(data.data() + i * bytes, &code, bytes);
    }
    return data;
  };
  const std::vector<uint8_t> a = operand(M * K);
  const std::vector<uint8_t> b = operand(N * K);
  std::vector<float> scales(M * 6);
  for (float& s : scales) {
    s = static_cast<float>(rng() % 1000 + 1) / 999.0f;
  }
  std::vector<float> d(M * N);
  GemmProblem p{.M = M, .N = N, .K = K};
  p.a = {.data = a.data(), .format = format, .stride = K};
  p.b = {.data = b.data(), .format = format, .transposed = true, .stride = K};
  if (scaled) {
    p.a.scales = {
        .data = scales.data(), .block_mn = 1, .block_k = 128, .stride_mn = 6, .stride_k = 1};
  }
  p.d = d.data();
  p.d_stride = N;
  p.acc = acc;
  p.epilogue.activation = Activation::gelu;
  gemm(p, kCpu);
  return hash_of(d);
}

// Recorded once; they hold for every instruction set (HALFTONE_CPU), compiler and number of
// threads.
TEST(Cases, FC106_SameBitsOnAnyCpu) {
  EXPECT_EQ(product_hash(kBf16, Accumulator::fp32, false), 0xf82d517cd3a9a74fu);
  EXPECT_EQ(product_hash(kFp16, Accumulator::fp32, true), 0x38cf88d8dd3147e2u);
  EXPECT_EQ(product_hash(kE4M3, Accumulator::fp32, true), 0x6801eb1c74705bc0u);
  EXPECT_EQ(product_hash(kBf16, Accumulator::hopper16, false), 0xce46b1ad0142fdc9u);
  EXPECT_EQ(product_hash(kFp16, Accumulator::ampere16, false), 0xd6eb39e89ab97cb1u);
  EXPECT_EQ(product_hash(kFp16, Accumulator::fp16, false), 0xdb45f506bfb339f8u);
  EXPECT_EQ(product_hash(kE4M3, Accumulator::hopper8, true), 0x18519d0ace927960u);
}

}  // namespace
}  // namespace halftone
