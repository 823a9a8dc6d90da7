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
#include "ops/gemm/gemm_epilogue.cuh"

namespace halftone::detail {

/// How a tile leaves the registers.
enum class StorePath : uint8_t {
  tma,  // 16-bit D of the operands' type, bias at most: through swizzled shared memory and the copy
        // engine
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
  // the ring, so that a tile's stores drain while the next is multiplied; at least the 16 KB that
  // the staged path takes.
  static constexpr int kTileSlabs = kRows / 64 * (kN / 64);
  static constexpr int kFitting =
      (kSharedLimit - 1280 - kStages * kStageBytes) / (kConsumers * 8192);
  static constexpr int kSlabs = kFitting < 2                 ? 2
                                : kFitting >= kTileSlabs     ? (kTileSlabs < 2 ? 2 : kTileSlabs)
                                : kTileSlabs % kFitting == 0 ? kFitting
                                                             : 2;
  static constexpr int kStagingBytes = kConsumers * kSlabs * 8192;
  static constexpr int kSharedBytes = 1024 + kStages * kStageBytes + kStagingBytes + 16 * kStages;
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
  const int first_half = args.cluster == 2 ? rank : 0;
  const int halves = args.cluster == 2 ? 1 : 2;
  for (int i = blockIdx.x / args.cluster; i < units; i += gridDim.x / args.cluster) {
    const WgmmaUnit u = wgmma_unit<T>(args, i, rank);
    const int m = u.tile_m * T::kM;
    const int n = u.tile_n * T::kN;
    const int matrix_a = args.a_batched ? u.matrix + args.out.group_of(u.matrix) * args.a_skip : 0;
    const int matrix_b = args.b_batched ? u.matrix + args.out.group_of(u.matrix) * args.b_skip : 0;
    for (int step = 0; step < u.steps; ++step) {
      const int k = u.k_begin + step * T::kK;
      const uint32_t bar = full + 8 * at.stage;
      const uint32_t a = stages + at.stage * T::kStageBytes;
      const uint32_t b = a + T::kABytes;
      chaos<T>(state);
      barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
      barrier_expect(bar, T::kStageBytes);
      if constexpr (T::kAmn) {
#pragma unroll
        for (int block = 0; block < T::kM / 64; ++block) {
          tma_load(a + block * 8192, map_a, bar, m + 64 * block, k, matrix_a);
        }
      } else {
        tma_load(a, map_a, bar, k, m, matrix_a);
      }
      for (int half = first_half; half < first_half + halves; ++half) {
        const auto load_b = [&](uint32_t to, int x, int row) {
          if (args.cluster == 2) {
            tma_load_multicast(to, map_b, bar, x, row, matrix_b, 3);
          } else {
            tma_load(to, map_b, bar, x, row, matrix_b);
          }
        };
        if constexpr (T::kBmn) {
#pragma unroll
          for (int block = 0; block < T::kN / 64; ++block) {
            load_b(b + block * 8192 + half * 4096, n + 64 * block, k + 32 * half);
          }
        } else {
          load_b(b + half * (T::kBBytes / 2), k, n + half * (T::kN / 2));
        }
      }
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

/// Starts all products of one unit, into acc, and releases the stages of those that are done.
/// Returns the last stage.
template <class T>
__device__ __forceinline__ int wgmma_multiply(float (&acc)[T::kRows / 64][T::kN / 2],
                                              const WgmmaUnit& u,
                                              RingPosition<T::kStages>& at,
                                              uint32_t stages,
                                              uint32_t full,
                                              uint32_t empty,
                                              int cluster,
                                              int row,
                                              uint32_t& state) {
  using namespace sm90;
  constexpr int kBlocks = T::kRows / 64;
  // K-major: 32 bytes along the row. MN-major: 16 rows of K, 128 bytes each.
  constexpr uint32_t kStepA = (T::kAmn ? 2048 : 32) >> 4;
  constexpr uint32_t kStepB = (T::kBmn ? 2048 : 32) >> 4;
  int previous = 0;
  for (int step = 0; step < u.steps; ++step) {
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

/// One slab, 64 x 64 of a warpgroup, as 16-bit values with the bias added.
template <class T>
__device__ __forceinline__ void write_slab(const float* acc,
                                           const GemmOutput& out,
                                           uint32_t to,
                                           int column) {
  const int lane = threadIdx.x % 32;
  const int row =
      threadIdx.x / 32 % 4 * 16 + lane % 16;  // whose address this lane gives to stmatrix
  float2 bias[8];
  if (out.bias != nullptr) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int n = column + j * 8 + 2 * (lane % 4);
      bias[j] = load_pair(out.bias, out.bias_dtype, n, out.vectors, out.N - n);
    }
  }
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float v[8];
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = acc[pair * 8 + i];
      if (out.bias != nullptr) {
        const float2 b = bias[2 * pair + i / 4];
        v[i] += i % 2 == 0 ? b.x : b.y;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = std::is_same_v<typename T::In, Half> ? pack_f16(v[2 * i], v[2 * i + 1])
                                                      : pack_bf16(v[2 * i], v[2 * i + 1]);
    }
    const int chunk = pair * 2 + lane / 16;
    sm90::stmatrix_x4(
        to + row * 128 + ((chunk ^ (row % 8)) << 4), words[0], words[1], words[2], words[3]);
  }
}

/// A warpgroup's part of the tile as 16-bit values through slabs and the copy engine. The thread
/// that issues the stores waits until those of the tile before have read their slabs; all then wait
/// for it.
template <class T>
__device__ __forceinline__ void store_tma(const float (&acc)[T::kRows / 64][T::kN / 2],
                                          const CUtensorMap* map_d,
                                          const GemmOutput& out,
                                          uint32_t staging,
                                          int barrier,
                                          int row,
                                          int column,
                                          int matrix) {
  using namespace sm90;
  constexpr int kAcross = T::kN / 64;
#pragma unroll
  for (int first = 0; first < T::kTileSlabs; first += T::kSlabs) {
    if (threadIdx.x % 128 == 0) {
      tma_store_wait_read<0>();
    }
    named_sync(barrier, 128);
#pragma unroll
    for (int i = 0; i < T::kSlabs && first + i < T::kTileSlabs; ++i) {
      const int slab = first + i;
      write_slab<T>(&acc[slab / kAcross][slab % kAcross * 32],
                    out,
                    staging + i * 8192,
                    column + slab % kAcross * 64);
    }
    fence_proxy_async();
    named_sync(barrier, 128);
    if (threadIdx.x % 128 == 0) {
#pragma unroll
      for (int i = 0; i < T::kSlabs && first + i < T::kTileSlabs; ++i) {
        const int slab = first + i;
        const int r = row + slab / kAcross * 64;
        const int c = column + slab % kAcross * 64;
        if (r < out.M && c < out.N) {
          tma_store(map_d, staging + i * 8192, c, r, matrix);
        }
      }
      tma_store_commit();
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    gemm_wgmma_kernel(const __grid_constant__ CUtensorMap map_a,
                      const __grid_constant__ CUtensorMap map_b,
                      const __grid_constant__ CUtensorMap map_d,
                      const __grid_constant__ WgmmaArgs args) {
#ifdef HALFTONE_SM90A
  using namespace sm90;
  extern __shared__ uint8_t shared_raw[];
  const uint32_t shared = (shared_address(shared_raw) + 1023) & ~1023u;
  const uint32_t staging = shared + T::kStages * T::kStageBytes;
  const uint32_t full = staging + T::kStagingBytes;
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
    const int consumer = warpgroup - 1;
    const int row_in_tile = T::kPingPong ? 0 : consumer * T::kRows;
    const int stride = gridDim.x / args.cluster;
    RingPosition<T::kStages> at;
    uint32_t state = blockIdx.x * 7919 + warpgroup;
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
    while (i < units) {
      const WgmmaUnit u = next;
      if constexpr (T::kPingPong) {
        named_sync(4 + consumer, 256);
      }
      float acc[T::kRows / 64][T::kN / 2];
      const int last_stage =
          wgmma_multiply<T>(acc, u, at, shared, full, empty, args.cluster, row_in_tile, state);
      if constexpr (T::kPingPong) {
        named_arrive(4 + (consumer ^ 1), 256);
        at.advance(i + stride < units ? wgmma_steps_of_unit<T>(args, i + stride) : 0);
        i += stride;
      }
      i += stride;
      // Divisions, while the last products are on their way.
      next = wgmma_unit<T>(args, min(i, units - 1), rank);
      asm volatile("" ::"r"(next.tile_m), "r"(next.tile_n), "r"(next.steps));
      wgmma_drain<T>(acc);
      release_stage(empty, last_stage, args.cluster);
      const int row = u.tile_m * T::kM + row_in_tile;
      const int column = u.tile_n * T::kN;
      const uint32_t own_staging = staging + consumer * (T::kStagingBytes / T::kConsumers);
      if (sizeof(typename T::In) == 2 && args.store == StorePath::tma) {
        store_tma<T>(acc, &map_d, args.out, own_staging, 1 + consumer, row, column, u.place);
        continue;
      }
      const int warp = threadIdx.x / 32 % 4;
      if (args.store == StorePath::direct) {
#pragma unroll
        for (int part = 0; part < T::kTileSlabs; ++part) {
          const int block = part / (T::kN / 64);
          const int slab = part % (T::kN / 64);
          store_fragments<64, 8>(&acc[block][slab * 32],
                                 args.out,
                                 row + block * 64 + warp * 16,
                                 column + slab * 64,
                                 u.place,
                                 u.split);
        }
        continue;
      }
      float* warp_staging = reinterpret_cast<float*>(
          shared_raw + (own_staging - shared_address(shared_raw)) + warp * 4096);
#pragma unroll
      for (int part = 0; part < T::kTileSlabs; ++part) {
        const int block = part / (T::kN / 64);
        const int slab = part % (T::kN / 64);
        finish_fragments<64>(&acc[block][slab * 32],
                             args.out,
                             warp_staging,
                             row + block * 64 + warp * 16,
                             column + slab * 64,
                             u.place);
      }
    }
    if (threadIdx.x % 128 == 0) {
      tma_store_wait_all();
    }
  }
#endif
}

}  // namespace halftone::detail
