// Which kernel, tile and order of addition a GEMM gets: pinned here, on any machine, because
// results' bits follow from the order.
#include "ops/gemm/gemm_config.h"

#include <gtest/gtest.h>

#include "core/formats.h"

namespace halftone {
namespace {

const DeviceCaps kH200{90, 132};
const DeviceCaps kA100{80, 108};

GemmProblem problem(int64_t M, int64_t N, int64_t K, Format format = kBf16) {
  GemmProblem p;
  p.M = M;
  p.N = N;
  p.K = K;
  p.a.format = p.b.format = format;
  p.a.stride = p.b.stride = K;
  return p;
}

int64_t splits(int64_t M, int64_t N, int64_t K) {
  const int64_t split_k = k_order(problem(M, N, K)).split_k;
  return (K + split_k - 1) / split_k;
}

TEST(GemmConfig, WholeTilesAreNotSplit) {
  for (const auto& [M, N, K] : {std::tuple{4096, 4096, 4096},
                                {8192, 8192, 8192},
                                {32768, 2304, 768},
                                {32768, 768, 50304},
                                {50304, 768, 32768},
                                {512, 512, 512},
                                {1024, 1024, 1024},
                                {128, 1024, 784}}) {
    EXPECT_EQ(splits(M, N, K), 1) << M << "x" << N << "x" << K;
  }
}

TEST(GemmConfig, WeightGradientsAreSplitToFillTheChip) {
  EXPECT_EQ(splits(2304, 768, 32768), 2);
  EXPECT_EQ(splits(768, 768, 32768), 7);
  EXPECT_EQ(splits(3072, 768, 32768), 4);
  EXPECT_EQ(splits(768, 3072, 32768), 4);
  EXPECT_GT(splits(384, 384, 16384), 4);
}

TEST(GemmConfig, SplitsEndAtMultiplesOf128) {
  for (const int64_t M : {1, 65, 384, 768, 2304}) {
    for (const int64_t K : {0, 1, 127, 128, 129, 5000, 32768, 65536}) {
      const KOrder order = k_order(problem(M, 384, K));
      EXPECT_GT(order.split_k, 0);
      EXPECT_EQ(order.split_k % 128, 0) << M << "x384x" << K;
    }
  }
}

TEST(GemmConfig, OrderIsTheSameForEveryLayoutStrideEpilogueAndAccumulator) {
  const GemmProblem p = problem(768, 768, 32768);
  GemmProblem q = p;
  q.a.transposed = q.b.transposed = true;
  q.a.stride += 3;
  q.d_dtype = DType::bf16;
  q.epilogue.activation = Activation::gelu;
  q.accumulate = true;
  q.acc = Accumulator::hopper16;
  EXPECT_EQ(k_order(p), k_order(q));
}

TEST(GemmConfig, InstructionFollowsFormatAndAccumulator) {
  EXPECT_EQ(k_order(problem(64, 64, 64, kBf16)).instruction_k, 16);
  EXPECT_EQ(k_order(problem(64, 64, 64, kE4M3)).instruction_k, 16);
  EXPECT_EQ(k_order(problem(64, 64, 64, kTf32)).instruction_k, 8);
  EXPECT_EQ(k_order(problem(64, 64, 64, kFp32)).instruction_k, 1);
  GemmProblem p = problem(64, 64, 64, kE4M3);
  p.acc = Accumulator::hopper8;
  EXPECT_EQ(k_order(p).instruction_k, 32);
  p.acc = Accumulator::ampere16;
  EXPECT_EQ(k_order(p).instruction_k, 8);
}

TEST(GemmConfig, PromotesAtTheShorterOfPromoteAndBlock) {
  const float scale = 1;
  GemmProblem p = problem(64, 64, 512, kE4M3);
  EXPECT_EQ(k_order(p).promote, 0);
  p.promote = 128;
  EXPECT_EQ(k_order(p).promote, 128);
  p.a.scales = {.data = &scale, .block_mn = 1, .block_k = 32, .stride_mn = 16, .stride_k = 1};
  EXPECT_EQ(k_order(p).promote, 32);
  p.a.scales.block_k = GemmScales::kWhole;
  EXPECT_EQ(k_order(p).promote, 128);
}

TEST(GemmConfig, ChoosesTheHighestRungThatTakesTheProblem) {
  EXPECT_EQ(choose_gemm(problem(4096, 4096, 4096), kH200).kernel, GemmKernel::wgmma);
  EXPECT_EQ(choose_gemm(problem(4096, 4096, 4096), kA100).kernel, GemmKernel::mma);
  EXPECT_EQ(choose_gemm(problem(4096, 4096, 4096, kFp16), {75, 68}).kernel, GemmKernel::wmma);
  EXPECT_EQ(choose_gemm(problem(4096, 4096, 4096, kFp32), kH200).kernel, GemmKernel::simt);
  GemmProblem promoted = problem(64, 64, 64, kE4M3);
  promoted.promote = 128;
  EXPECT_EQ(choose_gemm(promoted, kH200).kernel, GemmKernel::mma);
  EXPECT_EQ(choose_gemm(problem(64, 64, 0), kH200).kernel, GemmKernel::mma);
}

TEST(GemmConfig, TheNumberOfGroupsChangesNoBit) {
  for (const int64_t K : {256, 4096, 16384}) {
    GemmProblem p = problem(256, 64, K);
    p.group = 1;
    const KOrder alone = k_order(p);
    p.batch = 64;
    EXPECT_EQ(k_order(p), alone);
    EXPECT_EQ(choose_gemm(p, kH200).splits, choose_gemm(problem(256, 64, K), kH200).splits);
  }
}

TEST(GemmConfig, TilesFollowTheShape) {
  const auto tile = [](int64_t M, int64_t N, int64_t K) {
    return choose_gemm(problem(M, N, K), kH200).tile;
  };
  EXPECT_EQ(tile(512, 512, 512), (GemmTile{64, 64}));
  EXPECT_EQ(tile(1024, 1024, 1024), (GemmTile{64, 128}));
  EXPECT_EQ(tile(1024, 1024, 128), (GemmTile{64, 64}));
  EXPECT_EQ(tile(4096, 4096, 4096), (GemmTile{128, 256}));
  EXPECT_EQ(tile(4096, 2112, 7168), (GemmTile{128, 192}));
  EXPECT_EQ(tile(32768, 3072, 768), (GemmTile{128, 128}));
  GemmProblem packed = problem(32768, 3072, 768);  // its stores hide behind the next tile
  packed.d_dtype = DType::bf16;
  EXPECT_EQ(choose_gemm(packed, kH200).tile, (GemmTile{128, 256}));
  GemmProblem gelu = problem(4096, 4096, 4096);
  gelu.epilogue.activation = Activation::gelu;
  EXPECT_EQ(choose_gemm(gelu, kH200).tile, (GemmTile{128, 128}));
}

TEST(GemmConfig, RefusalSaysWhy) {
  GemmProblem p = problem(64, 64, 64);
  p.acc = Accumulator::ampere16;
  EXPECT_NE(refusal(GemmKernel::mma, p, kH200), "");
  EXPECT_EQ(refusal(GemmKernel::mma, p, kA100), "");
  EXPECT_THROW(choose_gemm(p, kH200), std::invalid_argument);
  EXPECT_THROW(choose_gemm(problem(64, 64, 64), kA100, "wgmma"), std::invalid_argument);
  EXPECT_THROW(choose_gemm(problem(64, 64, 64), kH200, "cutlass"), std::invalid_argument);
  EXPECT_EQ(choose_gemm(problem(64, 64, 64), kH200, "wmma").kernel, GemmKernel::wmma);
}

}  // namespace
}  // namespace halftone
