// What the wgmma kernel is told, what an instantiation of it looks like, and how the work is dealt:
// units (split of K, matrix of the batch, output tile), to clusters round robin, tiles that share
// operands one after the other.
#pragma once

#include "core/cuda/mma_sm90.cuh"
#include "ops/gemm/gemm_epilogue.cuh"

namespace halftone::detail {

/// How a tile leaves the registers.
enum class StorePath : uint8_t {
  packed,  // 16-bit D of the operands' type in aligned rows, with a bias; from the ping-pong kernel
           // with activation and pre-activation too
  direct,  // store_fragments: partial sums, and an FP32 D without an epilogue
  staged,  // finish_fragments: everything else
};

struct WgmmaArgs {
  GemmOutput out;
  int K = 0;
  int split_k = 0;
  int splits = 1;
  int tiles_m = 0;  // rounded up to whole clusters
  int tiles_n = 0;
  int cluster = 1;
  int group = 8;  // clusters along M whose tiles are taken together, so that a wave's operands stay
                  // in the L2 cache
  bool a_batched = true;  // false: one matrix serves the whole batch
  bool b_batched = true;
  // Matrices that the tensor maps have between groups of the batch.
  int a_skip = 0;
  int b_skip = 0;
  StorePath store = StorePath::staged;
};

/// One instantiation. `In` is BFloat16, Half or float (tf32).
/// Cooperative: the consumers share a tile, split along M. Ping-pong: each takes whole tiles in
/// turn.
template <class In_,
          int kM_,
          int kN_,
          int kStages_,
          int kConsumers_,
          bool kPingPong_,
          bool kAmn_,
          bool kBmn_,
          bool kChaos_ = false>
struct WgmmaTraits {
  using In = In_;
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kStages = kStages_;
  static constexpr int kConsumers = kConsumers_;
  static constexpr bool kPingPong = kPingPong_;
  static constexpr bool kAmn = kAmn_;
  static constexpr bool kBmn = kBmn_;
  static constexpr bool kChaos = kChaos_;  // tests: random delays before every wait

  static constexpr int kK = 128 / sizeof(In);
  static constexpr int kInstructionK = 32 / sizeof(In);
  static constexpr int kRows = kPingPong ? kM : kM / kConsumers;  // of one consumer
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kABytes = kM * 128;
  static constexpr int kBBytes = kN * 128;
  static constexpr int kStageBytes = kABytes + kBBytes;
  // With 96 accumulators a thread and more the even share of 168 registers spills: the producer's
  // go to the consumers. The compiler gives a kernel all 168 at entry only where it needs them, and
  // the pool would otherwise be short and the block hang.
  static constexpr bool kMovesRegisters = kConsumers == 2 && kRows * kN / 128 >= 96;
  static constexpr int kSharedLimit = 232448;
  // Staging of one consumer: slabs of 64 x 64 16-bit values, all of its tile where they fit beside
  // the ring, else half of them; at least the 16 KB that the staged path takes.
  static constexpr int kTileSlabs = kRows / 64 * (kN / 64);
  static constexpr int kBiasBytes = kConsumers * kN * 4;
  static constexpr int kFitting =
      (kSharedLimit - 16 * kStages - kBiasBytes - kStages * kStageBytes) / (kConsumers * 8192);
  static constexpr int kSlabs = kFitting >= kTileSlabs && kTileSlabs > 2 ? kTileSlabs : 2;
  static constexpr int kRounds = (kTileSlabs + kSlabs - 1) / kSlabs;  // of staging, a tile
  static constexpr int kStagingBytes = kConsumers * kSlabs * 8192;
  static constexpr int kSharedBytes = kStages * (kStageBytes + 16) + kStagingBytes + kBiasBytes;
  static_assert(kRows % 64 == 0 && kStages >= 3 && kSharedBytes <= kSharedLimit);
};

/// One unit of work: where its tile and its part of K are.
struct WgmmaUnit {
  int tile_m;
  int tile_n;
  int matrix;
  int place;  // of the matrix in D
  int split;
  int k_begin;
  int steps;
};

template <class T>
__device__ __forceinline__ int wgmma_steps(const WgmmaArgs& args, int split) {
  return (min(args.K - split * args.split_k, args.split_k) + T::kK - 1) / T::kK;
}

template <class T>
__device__ __forceinline__ WgmmaUnit wgmma_unit(const WgmmaArgs& args, int unit, int rank) {
  const int rows = args.tiles_m / args.cluster;
  const int per_matrix = rows * args.tiles_n;
  int tile = unit;
  WgmmaUnit u;
  u.matrix = 0;
  u.place = 0;
  u.split = 0;
  if (args.out.batch * args.splits > 1) {
    const int matrix_and_split = unit / per_matrix;
    tile = unit % per_matrix;
    u.split = matrix_and_split / args.out.batch;
    u.matrix = matrix_and_split % args.out.batch;
    u.place = args.out.place(u.matrix);
  }
  const int first = tile / (args.group * args.tiles_n) * args.group;
  const int height = min(args.group, rows - first);
  const int within = tile - first * args.tiles_n;
  u.tile_n = within / height;
  u.tile_m = (first + within - u.tile_n * height) * args.cluster + rank;
  u.k_begin = u.split * args.split_k;
  u.steps = wgmma_steps<T>(args, u.split);
  return u;
}

/// The steps of a unit alone.
template <class T>
__device__ __forceinline__ int wgmma_steps_of_unit(const WgmmaArgs& args, int unit) {
  return wgmma_steps<T>(
      args,
      args.splits == 1 ? 0 : unit / (args.tiles_m / args.cluster * args.tiles_n * args.out.batch));
}

/// A position in the ring of stages, and the parity of its current round.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int steps) {
    stage += steps;
    parity ^= (stage / kStages) & 1;
    stage %= kStages;
  }
};

template <class T>
__device__ __forceinline__ void chaos(uint32_t& state) {
  if constexpr (T::kChaos) {
    state = state * 1664525u + 1013904223u;
    if (state >> 29 == 0) {
      __nanosleep((state >> 16) & 0x7FF);
    }
  }
}

}  // namespace halftone::detail
