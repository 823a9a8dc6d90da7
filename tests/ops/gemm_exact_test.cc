// The CPU's GEMM to the last bit: against scalar replays of the order each kernel promises,
// whatever the shape, layout, scaling, epilogue and number of threads.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/formats.h"
#include "core/parallel.h"
#include "ops/gemm/gemm_config.h"
#include "tests/support/gemm_case.h"

namespace halftone {
namespace {

using testing::GemmCase;
using testing::GemmSpec;

const Device kCpu{};

/// What D holds for an FP32 result.
double stored(DType dtype, float x) {
  return dtype == DType::bf16 ? round_to(kBf16, x) : dtype == DType::f16 ? round_to(kFp16, x) : x;
}

/// Whether the CPU's fast kernel adds by fused multiply-adds; where products are exact it makes no
/// difference.
constexpr bool kHasFma =
#ifdef __FMA__
    true;
#else
    false;
#endif

bool products_are_exact(const GemmSpec& spec) { return compute_format(spec.a, spec.b) != kFp32; }

void expect_replayed(const GemmSpec& spec, int64_t row_step = 1) {
  GemmCase c(spec);
  gemm(c.problem, kCpu);
  for (int64_t i = 0; i < spec.batch; ++i) {
    for (int64_t m = 0; m < spec.M; m += row_step) {
      for (int64_t n = 0; n < spec.N; ++n) {
        const float product =
            spec.acc == Accumulator::fp32 ? c.replay_eigen(i, m, n) : c.replay_emulated(i, m, n);
        float pre = 0;
        const float expected = c.finish(product, i, m, n, &pre);
        ASSERT_EQ(std::bit_cast<uint64_t>(c.d.get(i, m, n)),
                  std::bit_cast<uint64_t>(stored(spec.d, expected)))
            << "D(" << i << ", " << m << ", " << n << ") is " << c.d.get(i, m, n) << ", replayed "
            << expected;
        if (spec.pre_activation) {
          ASSERT_EQ(c.pre.get(i, m, n), stored(spec.d, pre));
        }
      }
    }
  }
}

/// A small problem with everything in it that `acc` takes.
GemmSpec random_spec(Accumulator acc, std::mt19937& rng) {
  const auto pick = [&](auto... options) {
    const std::common_type_t<decltype(options)...> list[] = {options...};
    return list[rng() % sizeof...(options)];
  };
  GemmSpec s;
  s.M = pick(1, 3, 17, 64, 65);
  s.N = pick(1, 10, 16, 47, 65, 100);
  s.K = pick(1, 15, 16, 33, 128, 300, 513);
  s.batch = pick(1, 1, 2);
  s.a_transposed = rng() % 2;
  s.b_transposed = rng() % 2;
  s.broadcast_b = rng() % 4 == 0;
  s.row_gap = pick(0, 3);
  s.acc = acc;
  s.d = pick(DType::f32, DType::bf16, DType::f16);
  s.promote = pick(0, 0, 32, 128);
  const auto format = [&] {
    switch (acc) {
      case Accumulator::hopper8:
        return pick(kE4M3, kE5M2);
      case Accumulator::fp16:
        return pick(kFp16, kE4M3, kE2M1);
      case Accumulator::fp32:
        return kHasFma ? pick(kFp32, kTf32, kBf16, kFp16, kE4M3, kE2M1)
                       : pick(kBf16, kFp16, kE4M3, kE2M1);
      default:
        return pick(kTf32, kBf16, kFp16, kE4M3, kE5M2, kE2M3);
    }
  };
  s.a = format();
  s.b = format();
  if (rng() % 3 == 0) {
    s.a_block_mn = pick(int64_t{1}, int64_t{128}, GemmScales::kWhole);
    s.a_block_k = pick(int64_t{16}, int64_t{128}, GemmScales::kWhole);
    s.b_block_mn = pick(int64_t{1}, int64_t{32});
    s.b_block_k = pick(s.a_block_k, int64_t{32});
  }
  s.bias = rng() % 2;
  s.activation = pick(Activation::none, Activation::relu, Activation::gelu);
  s.gradient = s.activation != Activation::none && rng() % 3 == 0;
  s.pre_activation = !s.gradient && rng() % 2;
  s.residual = rng() % 3 == 0;
  s.accumulate = s.d == DType::f32 && rng() % 2;
  s.bias_dtype = pick(DType::f32, DType::bf16);
  s.seed = rng();
  return s;
}

class GemmExact : public ::testing::TestWithParam<Accumulator> {};

TEST_P(GemmExact, EqualsTheReplayOfItsOrder) {
  std::mt19937 rng(11);
  for (int i = 0; i < 150; ++i) {
    const GemmSpec spec = random_spec(GetParam(), rng);
    SCOPED_TRACE(::testing::Message()
                 << "problem " << i << ": " << spec.M << "x" << spec.N << "x" << spec.K << ' '
                 << to_string(spec.a) << " * " << to_string(spec.b));
    ASSERT_TRUE(GetParam() != Accumulator::fp32 || kHasFma || products_are_exact(spec));
    expect_replayed(spec);
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST_P(GemmExact, SameBitsWithAnyNumberOfThreads) {
  const int before = num_threads();
  std::mt19937 rng(12);
  for (int i = 0; i < 12; ++i) {
    GemmSpec spec = random_spec(GetParam(), rng);
    spec.M = 300;
    spec.N = 130 + i;
    spec.batch = 1;
    spec.column_sums = true;
    std::vector<std::vector<uint8_t>> outputs;
    for (const int threads : {1, 2, 5}) {
      set_num_threads(threads);
      GemmCase c(spec);
      gemm(c.problem, kCpu);
      outputs.emplace_back(c.d.bytes().data(), c.d.bytes().data() + c.d.bytes().size());
      const uint8_t* sums = reinterpret_cast<const uint8_t*>(c.column_sums.data());
      outputs.back().insert(
          outputs.back().end(), sums, sums + c.column_sums.size() * sizeof(float));
    }
    EXPECT_EQ(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
  }
  set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Accumulators,
                         GemmExact,
                         ::testing::Values(Accumulator::fp32,
                                           Accumulator::fp16,
                                           Accumulator::hopper16,
                                           Accumulator::ampere16,
                                           Accumulator::hopper8),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(GemmExactLarge, SplitsOfALongReductionAreAddedInOrder) {
  for (const Format& format : {kBf16, kTf32, kE4M3}) {
    GemmSpec spec{
        .M = 3, .N = 5, .K = 9001, .a = format, .b = format, .acc = Accumulator::hopper16};
    expect_replayed(spec);
    const GemmCase c(spec);
    EXPECT_LT(k_order(c.problem).split_k, spec.K) << "the case is meant to have several splits";
    spec.promote = 128;
    expect_replayed(spec);
  }
}

TEST(GemmExactLarge, TilesBeyondTheGrid) {
  expect_replayed({.M = 515, .N = 790, .K = 20, .a = kBf16, .b = kBf16}, 37);
  expect_replayed(
      {.M = 130, .N = 200, .K = 530, .a = kBf16, .b = kBf16, .acc = Accumulator::hopper16}, 13);
}

// Not part of the design, but useful: a row's bits do not depend on the rows beside it where the
// order does not.
TEST(GemmExactLarge, RowsDoNotDependOnTheirNumber) {
  const GemmSpec spec{.M = 200, .N = 77, .K = 333};
  GemmCase all(spec);
  gemm(all.problem, kCpu);
  GemmCase one(spec);
  one.problem.M = 1;
  one.problem.a.data = static_cast<const float*>(one.problem.a.data) + 123 * one.a.stride;
  gemm(one.problem, kCpu);
  for (int64_t n = 0; n < spec.N; ++n) {
    EXPECT_EQ(one.d.get(0, 0, n), all.d.get(0, 123, n));
  }
}

}  // namespace
}  // namespace halftone
