// The wgmma kernel (sm_90a). One persistent block a multiprocessor: a producer warp keeps a ring of
// shared-memory stages filled through the copy engine, consumer warpgroups multiply straight from
// shared memory. Two blocks of a cluster, neighbours along M, each fetch half of B's tile and
// multicast it to both. Work is cut into units (split of K, matrix of the batch, output tile),
// dealt to clusters round robin. Invariant: the products of one output are added in ascending K
// from zero within a split, whatever the tile, the cluster or the schedule. A stage holds 128 bytes
// of K for every row, 128-byte swizzled; K-major operands as rows of 128 bytes, MN-major ones as
// blocks of 64 MN by 64 K. Barriers: full[stage] counts the bytes that arrived, empty[stage] the
// consumer warps of both blocks.
#pragma once

#include "core/cuda/mma_sm90.cuh"
#include "ops/gemm/gemm_sm90_store.cuh"

namespace halftone::detail {

/// Calls load_a(offset in a stage, x, row) and load_b for the boxes of one step that this block
/// fetches: in a cluster, half of B.
template <class T, class LoadA, class LoadB>
__device__ __forceinline__ void for_each_box(const WgmmaArgs& args,
                                             const WgmmaUnit& u,
                                             int step,
                                             int rank,
                                             const LoadA& load_a,
                                             const LoadB& load_b) {
  const int m = u.tile_m * T::kM;
  const int n = u.tile_n * T::kN;
  const int k = u.k_begin + step * T::kK;
  if constexpr (T::kAmn) {
#pragma unroll
    for (int block = 0; block < T::kM / 64; ++block) {
      load_a(block * 8192, m + 64 * block, k);
    }
  } else {
    load_a(0, k, m);
  }
  const int first_half = args.cluster == 2 ? rank : 0;
  const int last_half = args.cluster == 2 ? rank : 1;
#pragma unroll 1
  for (int half = first_half; half <= last_half; ++half) {
    if constexpr (T::kBmn) {
#pragma unroll 1
      for (int block = 0; block < T::kN / 64; ++block) {
        load_b(T::kABytes + block * 8192 + half * 4096, n + 64 * block, k + 32 * half);
      }
    } else {
      load_b(T::kABytes + half * (T::kBBytes / 2), k, n + half * (T::kN / 2));
    }
  }
}

template <class T>
__device__ __forceinline__ void wgmma_produce(const CUtensorMap* map_a,
                                              const CUtensorMap* map_b,
                                              const WgmmaArgs& args,
                                              uint32_t stages,
                                              uint32_t full,
                                              uint32_t empty,
                                              int units,
                                              int rank) {
  using namespace sm90;
  RingPosition<T::kStages> at;
  uint32_t state = blockIdx.x * 7919 + 1;
  for (int i = blockIdx.x / args.cluster; i < units; i += gridDim.x / args.cluster) {
    const WgmmaUnit u = wgmma_unit<T>(args, i, rank);
    const int matrix_a = args.a_batched ? u.matrix + args.out.group_of(u.matrix) * args.a_skip : 0;
    const int matrix_b = args.b_batched ? u.matrix + args.out.group_of(u.matrix) * args.b_skip : 0;
    for (int step = 0; step < u.steps; ++step) {
      const uint32_t bar = full + 8 * at.stage;
      const uint32_t stage = stages + at.stage * T::kStageBytes;
      chaos<T>(state);
      barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
      barrier_expect(bar, T::kStageBytes);
      for_each_box<T>(
          args,
          u,
          step,
          rank,
          [&](int offset, int x, int row) {
            tma_load(stage + offset, map_a, bar, x, row, matrix_a);
          },
          [&](int offset, int x, int row) {
            if (args.cluster == 2) {
              tma_load_multicast(stage + offset, map_b, bar, x, row, matrix_b, 3);
            } else {
              tma_load(stage + offset, map_b, bar, x, row, matrix_b);
            }
          });
      at.advance();
    }
  }
  // The peer signals barriers of this block: it stays until the last of them has come.
  for (int stage = 0; stage < T::kStages; ++stage) {
    barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
    at.advance();
  }
}

/// Tells both blocks that this warp is done with a stage. By whole warps.
__device__ __forceinline__ void release_stage(uint32_t empty, int stage, int cluster) {
  const int lane = threadIdx.x % 32;
  if (lane < cluster) {
    sm90::barrier_arrive_at(empty + 8 * stage, lane);
  }
}

/// Starts all products of one unit, into acc, and releases the stages of those that are done. Calls
/// between<0>() when the first step is on its way and, where kBetween is 2, between<1>() when two
/// more are, or all there are. Returns the last stage.
template <class T, int kBetween, class Between>
__device__ __forceinline__ int wgmma_multiply(float (&acc)[T::kRows / 64][T::kN / 2],
                                              const WgmmaUnit& u,
                                              RingPosition<T::kStages>& at,
                                              uint32_t stages,
                                              uint32_t full,
                                              uint32_t empty,
                                              int cluster,
                                              int row,
                                              uint32_t& state,
                                              const Between& between) {
  using namespace sm90;
  constexpr int kBlocks = T::kRows / 64;
  // K-major: 32 bytes along the row. MN-major: 16 rows of K, 128 bytes each.
  constexpr uint32_t kStepA = (T::kAmn ? 2048 : 32) >> 4;
  constexpr uint32_t kStepB = (T::kBmn ? 2048 : 32) >> 4;
  int previous = 0;
  const auto start = [&](int step) {
    chaos<T>(state);
    barrier_wait(full + 8 * at.stage, at.parity);
    const uint32_t a = stages + at.stage * T::kStageBytes + row * 128;
    const uint64_t desc_a = matrix_descriptor(a, 8192, 1024);
    const uint64_t desc_b =
        matrix_descriptor(stages + at.stage * T::kStageBytes + T::kABytes, 8192, 1024);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kK / T::kInstructionK; ++k) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        wgmma<typename T::In, T::kN, T::kAmn, T::kBmn>(
            acc[block], desc_a + k * kStepA + block * (8192 >> 4), desc_b + k * kStepB, step | k);
      }
    }
    wgmma_commit();
    if (step > 0) {
      wgmma_wait<1>();
      release_stage(empty, previous, cluster);
    }
    previous = at.stage;
    at.advance();
  };
  start(0);
  between(std::integral_constant<int, 0>());
  int step = 1;
  if constexpr (kBetween == 2) {
    if (u.steps > 1) {
      start(1);
    }
    if (u.steps > 2) {
      start(2);
    }
    between(std::integral_constant<int, 1>());
    step = 3;
  }
  for (; step < u.steps; ++step) {
    start(step);
  }
  return previous;
}

/// Waits for the products that wgmma_multiply started.
template <class T>
__device__ __forceinline__ void wgmma_drain(float (&acc)[T::kRows / 64][T::kN / 2]) {
  sm90::wgmma_wait<0>();
#pragma unroll
  for (int block = 0; block < T::kRows / 64; ++block) {
#pragma unroll
    for (int i = 0; i < T::kN / 2; ++i) {
      asm volatile("" : "+f"(acc[block][i])::"memory");  // not to be read before the wait
    }
  }
}

/// A consumer warpgroup.
template <class T>
struct WgmmaConsumer {
  const WgmmaArgs& args;
  const CUtensorMap* map_d;
  const CUtensorMap* map_pre_activation;
  uint8_t* shared_raw;
  uint32_t shared;
  int units;
  int rank;
  int consumer;

  /// kPacks: whether its tiles leave by StorePath::packed. From the cooperative kernel they leave
  /// while the next one is multiplied.
  template <bool kPacks>
  __device__ __forceinline__ void run() const {
    using namespace sm90;
    const uint32_t full = shared + T::kStages * T::kStageBytes + T::kStagingBytes + T::kBiasBytes;
    const uint32_t empty = full + 8 * T::kStages;
    const uint32_t staging = shared + T::kStages * T::kStageBytes + consumer * (T::kSlabs * 8192);
    float* const bias =
        reinterpret_cast<float*>(shared_raw + T::kStages * T::kStageBytes + T::kStagingBytes) +
        consumer * T::kN;
    const int row_in_tile = T::kPingPong ? 0 : consumer * T::kRows;
    const int stride = gridDim.x / args.cluster;
    RingPosition<T::kStages> at;
    uint32_t state = blockIdx.x * 7919 + 1 + consumer;
    int i = blockIdx.x / args.cluster;
    if constexpr (T::kPingPong) {
      // The groups take turns at the ring: a parity tells only the current round from the one
      // before.
      if (consumer == 1) {
        named_arrive(4, 256);
        if (i < units) {
          at.advance(wgmma_steps_of_unit<T>(args, i));
        }
        i += stride;
      }
    }
    WgmmaUnit next = i < units ? wgmma_unit<T>(args, i, rank) : WgmmaUnit{};
    constexpr bool kDefers = kPacks && !T::kPingPong;
    constexpr int kBetween = kDefers ? T::kRounds : 1;
    const bool has_bias = kPacks && args.out.bias != nullptr;
    PackedTile<T> packed;
    bool is_packed = false;
    float acc[T::kRows / 64][T::kN / 2];
    while (i < units) {
      const WgmmaUnit u = next;
      const TilePlace place{u.tile_m * T::kM + row_in_tile, u.tile_n * T::kN, u.place};
      BiasShare<T::kN> bias_share;
      if (has_bias) {
        bias_share.load(args.out, place.column);
      }
      if constexpr (T::kPingPong) {
        named_sync(4 + consumer, 256);
      }
      const auto between = [&](auto round) {
        if constexpr (kDefers) {
          if (is_packed) {
            packed.template store<round()>(map_d, args.out, staging, 1 + consumer);
          }
        }
        if (round() == kBetween - 1 && has_bias) {
          named_sync(1 + consumer, 128);  // the bias of the tile before has been added
          bias_share.write(bias);
        }
      };
      const int last_stage = wgmma_multiply<T, kBetween>(
          acc, u, at, shared, full, empty, args.cluster, row_in_tile, state, between);
      if constexpr (T::kPingPong) {
        named_arrive(4 + (consumer ^ 1), 256);
        at.advance(i + stride < units ? wgmma_steps_of_unit<T>(args, i + stride) : 0);
        i += stride;
      }
      i += stride;
      // Divisions, while the last products are on their way.
      next = wgmma_unit<T>(args, min(i, units - 1), rank);
      asm volatile("" ::"r"(next.tile_m), "r"(next.tile_n), "r"(next.steps));
      if (has_bias) {
        named_sync(1 + consumer, 128);
      }
      wgmma_drain<T>(acc);
      release_stage(empty, last_stage, args.cluster);
      if constexpr (kDefers) {
        packed.pack(acc, has_bias ? bias : nullptr);
        packed.place = place;
        is_packed = true;
      } else if constexpr (kPacks) {
        finish_packed<T>(
            acc, map_d, map_pre_activation, args.out, bias, staging, 1 + consumer, place);
      } else {
        store_sums(acc, place, u.split);
      }
    }
    if constexpr (kDefers) {
      if (is_packed) {
        packed.template store<0>(map_d, args.out, staging, 1 + consumer);
        if constexpr (T::kRounds == 2) {
          packed.template store<1>(map_d, args.out, staging, 1 + consumer);
        }
      }
    }
  }

  __device__ __forceinline__ void store_sums(const float (&acc)[T::kRows / 64][T::kN / 2],
                                             const TilePlace& place,
                                             int split) const {
    constexpr int kAcross = T::kN / 64;
    const int warp = threadIdx.x / 32 % 4;
    if (args.store == StorePath::direct) {
#pragma unroll
      for (int part = 0; part < T::kTileSlabs; ++part) {
        store_fragments<64, 8>(&acc[part / kAcross][part % kAcross * 32],
                               args.out,
                               place.row + part / kAcross * 64 + warp * 16,
                               place.column + part % kAcross * 64,
                               place.matrix,
                               split);
      }
      return;
    }
    auto* warp_staging = reinterpret_cast<float*>(shared_raw + T::kStages * T::kStageBytes +
                                                  consumer * (T::kSlabs * 8192) + warp * 4096);
#pragma unroll 1
    for (int part = 0; part < T::kTileSlabs; ++part) {
      float v[32];
      take_part(acc, part, v);
      finish_fragments<64>(v,
                           args.out,
                           warp_staging,
                           place.row + part / kAcross * 64 + warp * 16,
                           place.column + part % kAcross * 64,
                           place.matrix);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    gemm_wgmma_kernel(const __grid_constant__ CUtensorMap map_a,
                      const __grid_constant__ CUtensorMap map_b,
                      const __grid_constant__ CUtensorMap map_d,
                      const __grid_constant__ CUtensorMap map_pre_activation,
                      const __grid_constant__ WgmmaArgs args) {
#ifdef HALFTONE_SM90A
  using namespace sm90;
  extern __shared__ __align__(1024) uint8_t shared_raw[];
  const uint32_t shared = shared_address(shared_raw);
  const uint32_t full = shared + T::kStages * T::kStageBytes + T::kStagingBytes + T::kBiasBytes;
  const uint32_t empty = full + 8 * T::kStages;
  const int warpgroup = __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0);
  const int rank = args.cluster == 2 ? static_cast<int>(cluster_rank()) : 0;
  const int units = args.tiles_m / args.cluster * args.tiles_n * args.out.batch * args.splits;

  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    for (int stage = 0; stage < T::kStages; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, 4 * (T::kPingPong ? 1 : T::kConsumers) * args.cluster);
    }
    fence_barrier_init();
  }
  if (args.cluster == 2) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  wait_for_previous_kernel();
  let_next_kernel_start();

  if (warpgroup == 0) {
    if constexpr (T::kMovesRegisters) {
      keep_registers<40>();
    }
    if (threadIdx.x == 0) {
      wgmma_produce<T>(&map_a, &map_b, args, shared, full, empty, units, rank);
    }
    __syncwarp();
  } else {
    if constexpr (T::kMovesRegisters) {
      take_registers<232>();
    }
    const WgmmaConsumer<T> consumer{
        args, &map_d, &map_pre_activation, shared_raw, shared, units, rank, warpgroup - 1};
    if (args.store == StorePath::packed) {
      consumer.template run<true>();
    } else {
      consumer.template run<false>();
    }
    if (threadIdx.x % 128 == 0) {
      tma_store_wait_all();
    }
  }
#endif
}

}  // namespace halftone::detail
