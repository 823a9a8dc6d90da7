#include "ops/gemm/gemm_config.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/integer.h"

namespace halftone {
namespace {

// The wgmma kernel's tiles, and what they cost in clocks, fitted to measurements on an H200: for
// 128 bytes of K, and for a tile whatever its K, by whether it leaves as packed 16-bit values
// (while the next is multiplied) or as sums. The Tensor Core itself takes M * N / 32 a step;
// smaller tiles wait for their operands instead. 128 x 128 is the ping-pong kernel's, whose stores
// hide.
struct TileCost {
  GemmTile tile;
  int64_t step_clocks;
  int64_t packed_clocks;
  int64_t sums_clocks;
};
constexpr std::array<TileCost, 5> kTiles{{{{128, 256}, 1024, 1500, 5200},
                                          {{128, 192}, 810, 1300, 4200},
                                          {{128, 128}, 585, 1700, 1700},
                                          {{64, 128}, 330, 2500, 2500},
                                          {{64, 64}, 200, 1500, 1500}}};
constexpr int64_t kFixUpClocks = 5000;  // launching the kernel that adds partial sums
constexpr int64_t kFixUpBytesPerClock = 1800;
constexpr int64_t kModelMultiprocessors = 132;
constexpr int64_t kMaxSplits = 32;

// Clocks for the whole problem, by tile. Integers, so that every machine agrees.
int64_t modelled_clocks(const GemmProblem& p,
                        const TileCost& cost,
                        int64_t batch,
                        int64_t split_k,
                        int64_t multiprocessors,
                        int64_t k_of_step,
                        bool is_packed) {
  const int64_t splits = std::max<int64_t>(1, ceil_div(p.K, split_k));
  const int64_t tiles = ceil_div(p.M, cost.tile.m) * ceil_div(p.N, cost.tile.n) * batch;
  const int64_t waves = ceil_div(tiles * splits, multiprocessors);
  const int64_t steps = ceil_div(std::min(split_k, p.K), k_of_step);
  int64_t clocks =
      waves * (steps * cost.step_clocks + (is_packed ? cost.packed_clocks : cost.sums_clocks));
  if (splits > 1) {
    clocks += kFixUpClocks + 4 * (splits + 1) * p.M * p.N * batch / kFixUpBytesPerClock;
  }
  return clocks;
}

// Elements of K in 128 bytes of an operand as multiplied.
int64_t k_of_step(const Format& compute) { return compute.bits() <= 16 ? 64 : 32; }

int64_t fastest_clocks(const GemmProblem& p, int64_t split_k, const Format& compute) {
  const int64_t batch = p.group == 0 ? p.batch : p.group;  // groups can be taken one at a time
  int64_t best = INT64_MAX;
  for (const TileCost& cost : kTiles) {
    best = std::min(
        best,
        modelled_clocks(p, cost, batch, split_k, kModelMultiprocessors, k_of_step(compute), false));
  }
  return best;
}

int64_t choose_split(const GemmProblem& p, const Format& compute) {
  const auto split_of = [&](int64_t splits) {
    return ceil_div(ceil_div(std::max<int64_t>(p.K, 1), splits), 128) * 128;
  };
  int64_t best = INT64_MAX;
  for (int64_t splits = 1; splits <= kMaxSplits; ++splits) {
    best = std::min(best, fastest_clocks(p, split_of(splits), compute));
  }
  // The fewest splits within 3% of the best: the model is rough, and splits take memory.
  for (int64_t splits = 1;; ++splits) {
    if (fastest_clocks(p, split_of(splits), compute) <= best + best / 32) {
      return split_of(splits);
    }
  }
}

int64_t instruction_k(const GemmProblem& p, const Format& compute) {
  const bool sixteen_bits = compute.bits() <= 16;
  if (compute == kFp32) {
    return 1;
  }
  switch (p.acc) {
    case Accumulator::hopper8:
      return 32;
    case Accumulator::ampere16:
      return sixteen_bits ? 8 : 4;
    case Accumulator::fp32:
    case Accumulator::fp16:
    case Accumulator::hopper16:
      return sixteen_bits ? 16 : 8;
  }
  throw std::logic_error("k_order: unknown accumulator");
}

bool is_scaled(const GemmProblem& p) {
  return p.a.scales.data != nullptr || p.b.scales.data != nullptr;
}

int64_t promotion(const GemmProblem& p) {
  int64_t promote = p.promote;
  for (const GemmScales* scales : {&p.a.scales, &p.b.scales}) {
    if (scales->data != nullptr && scales->block_k != GemmScales::kWhole) {
      promote = promote == 0 ? scales->block_k : std::min(promote, scales->block_k);
    }
  }
  return promote;
}

std::string wgmma_refusal(const GemmProblem& p, const DeviceCaps& caps) {
  if (caps.compute_capability != 90) {
    return "it needs compute capability 9.0";
  }
  if (is_scaled(p) || p.promote != 0) {
    return "it neither scales nor promotes";
  }
  if (p.K == 0) {
    return "K is 0";
  }
  return "";
}

std::string wmma_refusal(const GemmProblem& p, const DeviceCaps& caps) {
  if (p.a.format != p.b.format || !(p.a.format == kBf16 || p.a.format == kFp16)) {
    return "both operands have to be bf16 or fp16";
  }
  if (p.a.format == kBf16 && caps.compute_capability < 80) {
    return "bf16 needs compute capability 8.0";
  }
  return is_scaled(p) || p.promote != 0 ? "it neither scales nor promotes" : "";
}

}  // namespace

std::string_view name_of(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::simt:
      return "simt";
    case GemmKernel::wmma_naive:
      return "wmma_naive";
    case GemmKernel::wmma:
      return "wmma";
    case GemmKernel::mma:
      return "mma";
    case GemmKernel::wgmma:
      return "wgmma";
  }
  throw std::logic_error("gemm: unknown kernel");
}

KOrder k_order(const GemmProblem& problem) {
  const Format compute = compute_format(problem.a.format, problem.b.format);
  return {.instruction_k = instruction_k(problem, compute),
          .split_k = choose_split(problem, compute),
          .promote = promotion(problem)};
}

std::string refusal(GemmKernel kernel, const GemmProblem& problem, const DeviceCaps& caps) {
  if (problem.d_dtype == DType::f64) {
    return "f64 is for the CPU";
  }
  const bool tensor_core = kernel != GemmKernel::simt;
  const Accumulator own =
      caps.compute_capability >= 90 ? Accumulator::hopper16 : Accumulator::ampere16;
  if (problem.acc != Accumulator::fp32 && !(tensor_core && problem.acc == own)) {
    return "its accumulator is not the one asked for";
  }
  const Format compute = compute_format(problem.a.format, problem.b.format);
  if (tensor_core && compute == kFp32) {
    return "fp32 operands are multiplied on the CUDA cores";
  }
  switch (kernel) {
    case GemmKernel::simt:
      return "";
    case GemmKernel::wmma_naive:
    case GemmKernel::wmma:
      return wmma_refusal(problem, caps);
    case GemmKernel::mma:
      return caps.compute_capability < 80 ? "it needs compute capability 8.0" : "";
    case GemmKernel::wgmma:
      return wgmma_refusal(problem, caps);
  }
  throw std::logic_error("gemm: unknown kernel");
}

namespace {

// Pairs of tiles along M save a quarter of the traffic or more, unless making an odd count even
// costs a wave.
int choose_cluster(const GemmProblem& p, const GemmConfig& config, int64_t multiprocessors) {
  const int64_t tiles_m = ceil_div(p.M, config.tile.m);
  const int64_t others = ceil_div(p.N, config.tile.n) * p.batch * config.splits;
  const int64_t alone = ceil_div(tiles_m * others, multiprocessors);
  const int64_t in_pairs =
      ceil_div(ceil_div(tiles_m, 2) * others, std::max<int64_t>(multiprocessors / 2, 1));
  return tiles_m > 1 && in_pairs <= alone ? 2 : 1;
}

GemmConfig configure(GemmKernel kernel, const GemmProblem& p, const DeviceCaps& caps) {
  const Format compute = compute_format(p.a.format, p.b.format);
  GemmConfig config;
  config.kernel = kernel;
  config.order = k_order(p);
  config.splits = std::max<int64_t>(1, ceil_div(p.K, config.order.split_k));
  switch (kernel) {
    case GemmKernel::simt:
    case GemmKernel::wmma:
      config.tile = {128, 128};
      break;
    case GemmKernel::wmma_naive:
      config.tile = {64, 64};
      break;
    case GemmKernel::mma: {
      // Wide tiles where they nearly fill the device and K is long: nothing hides their ends.
      const bool is_plain = !is_scaled(p) && p.promote == 0;
      const int64_t wide_tiles = ceil_div(p.M, 128) * ceil_div(p.N, 256) * p.batch * config.splits;
      const bool fills = 4 * wide_tiles >= 3 * caps.multiprocessors;
      const bool is_long = std::min(p.K, config.order.split_k) >= 512;
      config.tile = {128, is_plain && fills && is_long ? 256 : 128};
      break;
    }
    case GemmKernel::wgmma: {
      // Exponentials, and reading what is added to: the ping-pong kernel multiplies meanwhile.
      const bool waits = config.splits == 1 && (p.epilogue.activation == Activation::gelu ||
                                                (p.accumulate && p.K < 16384));
      const bool is_packed = config.splits == 1 && size_of(p.d_dtype) == 2 && !waits;
      int64_t best = INT64_MAX;
      for (const TileCost& cost : kTiles) {
        int64_t clocks = modelled_clocks(p,
                                         cost,
                                         p.batch,
                                         config.order.split_k,
                                         caps.multiprocessors,
                                         k_of_step(compute),
                                         is_packed);
        if (waits && cost.tile.n > 128) {
          clocks = clocks * 5 / 4;
        }
        if (clocks < best) {
          best = clocks;
          config.tile = cost.tile;
        }
      }
      // Few steps and wide stores, which a tile alone on its multiprocessor hides behind nothing:
      // 1024 x 1024 x 128 into FP32 takes 9.7 us with the tile of 128 x 128 and 5.3 with the least.
      const bool is_brief = config.splits == 1 && size_of(p.d_dtype) == 4 && p.K <= 256;
      if (is_brief && ceil_div(p.M, 64) * ceil_div(p.N, 64) * p.batch <= 2 * caps.multiprocessors) {
        config.tile = {64, 64};
      }
      config.cluster = choose_cluster(p, config, caps.multiprocessors);
      break;
    }
  }
  return config;
}

}  // namespace

GemmConfig choose_gemm(const GemmProblem& problem,
                       const DeviceCaps& caps,
                       std::string_view kernel) {
  if (kernel.empty()) {
    for (const GemmKernel candidate :
         {GemmKernel::wgmma, GemmKernel::mma, GemmKernel::wmma, GemmKernel::simt}) {
      if (refusal(candidate, problem, caps).empty()) {
        return configure(candidate, problem, caps);
      }
    }
    throw std::invalid_argument(concat("gemm: no kernel for a device of compute capability ",
                                       caps.compute_capability,
                                       " takes this problem: ",
                                       refusal(GemmKernel::mma, problem, caps)));
  }
  for (const GemmKernel candidate : kGemmKernels) {
    if (name_of(candidate) == kernel) {
      const std::string reason = refusal(candidate, problem, caps);
      HALFTONE_CHECK(
          reason.empty(), "gemm: kernel ", kernel, " does not take this problem: ", reason);
      return configure(candidate, problem, caps);
    }
  }
  throw std::invalid_argument(
      concat("gemm: unknown kernel '", kernel, "'; expected simt, wmma_naive, wmma, mma or wgmma"));
}

}  // namespace halftone
