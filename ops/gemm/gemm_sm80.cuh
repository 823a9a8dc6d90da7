// The mma kernel (sm_80 and later): block tiles in two stages of shared memory, filled by cp.async
// in turn, ldmatrix, mma.sync. A warp computes 64 x 64 (64 x 32 with intervals, which take a second
// set of sums). The products of one instruction's depth run while the fragments of the next are
// read, across the border of stages too, and while the other stage is filled: the Tensor Core waits
// only where the block meets, once a stage. Invariant: the products of one output are added in
// ascending K from zero within an interval (gemm.h, KOrder).
#pragma once

#include "ops/gemm/gemm_epilogue.cuh"
#include "ops/gemm/gemm_sm80_intervals.cuh"

namespace halftone::detail {

struct MmaArgs {
  GemmOutput out;
  MmaOperand a;
  MmaOperand b;
  int K = 0;
  int split_k = 0;
  int promote = 0;
  int tiles_m = 0;
  int tiles_n = 0;
  bool direct = false;  // nothing but sums to store (GemmOutput::is_plain)
};

template <class In_, int kM_, int kN_, bool kAmn_, bool kBmn_, int kInterval_>
struct MmaTraits {
  using In = In_;
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr bool kAmn = kAmn_;
  static constexpr bool kBmn = kBmn_;
  static constexpr int kInterval = kInterval_;  // they end after so many slices; 0: there are none
  static constexpr int kWarpN = kInterval > 0 ? 32 : 64;
  static constexpr int kWarpsN = kN / kWarpN;
  static constexpr int kThreads = kM / 64 * kWarpsN * 32;
  static constexpr int kBlocks = 256 / kThreads;  // on a multiprocessor
  static constexpr int kHalves =                  // of 128 bytes of K, in a stage
      kN == 256 || (kInterval > 1 && sizeof(In) == 2) ? 2 : 1;
  static constexpr int kStages = 2;
  static constexpr int kSlices = 4 * kHalves;  // instructions of 32 bytes of K in a stage
  static constexpr int kK = kHalves * 128 / sizeof(In);
  static constexpr int kABytes = kM * 128;  // of a half
  static constexpr int kHalfBytes = kABytes + kN * 128;
  static constexpr int kStageBytes = kHalves * kHalfBytes;
  static_assert(kM * kN * 4 <= kStages * kStageBytes, "the sums are staged there at the end");
  static_assert(sizeof(In) == 2 || !(kAmn || kBmn), "tf32 operands are K-major");
};

/// Stores 64 x kWidth staged sums that have no epilogue, eight columns of a row at a time. What
/// they are added to is read for kBatch rows before the first of them is written.
template <int kWidth>
__device__ __forceinline__ void store_staged(
    const GemmOutput& out, float* staging, int row, int column, int place, int split) {
  constexpr int kLanes = kWidth / 8;   // to a row
  constexpr int kApart = 32 / kLanes;  // rows of a lane
  constexpr int kBatch = 4;
  const int lane = threadIdx.x % 32;
  const int c = column + lane % kLanes * 8;
  const bool is_partial = out.partials != nullptr;
  const int valid = is_partial ? 8 : min(8, out.N - c);
  if (c >= out.N) {
    return;
  }
#pragma unroll 1
  for (int first = lane / kLanes; first < 64; first += kBatch * kApart) {
    float v[kBatch][8];
    float* to[kBatch];
#pragma unroll
    for (int x = 0; x < kBatch; ++x) {
      const int r = first + x * kApart;
      to[x] = is_partial ? out.partial(split, place, row + r, c)
                         : static_cast<float*>(out.d) + out.offset(place, row + r, c);
      if (row + r < out.M && out.accumulate && !is_partial) {
        load_8(to[x], DType::f32, 0, true, valid, v[x]);
      }
    }
#pragma unroll
    for (int x = 0; x < kBatch; ++x) {
      const int r = first + x * kApart;
      if (row + r < out.M) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 sum = *reinterpret_cast<const float4*>(
              staged<kWidth>(staging, r, lane % kLanes * 2 + half));
          const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float& value = v[x][4 * half + j];
            value = out.accumulate && !is_partial ? value + sums[j] : sums[j];
          }
        }
        store_8(to[x], DType::f32, 0, true, valid, v[x]);
      }
    }
  }
}

// Grid: tiles of one matrix and split, M fastest within groups of 8 rows of tiles; then matrix,
// then split.
template <class T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    gemm_mma_kernel(const __grid_constant__ MmaArgs args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using namespace sm80;
  using In = typename T::In;
  extern __shared__ __align__(128) uint8_t shared_raw[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared_raw));
  const GemmOutput& out = args.out;

  constexpr int kGroup = 8;
  const int per_matrix = args.tiles_m * args.tiles_n;
  const int tile = blockIdx.x % per_matrix;
  const int matrix = blockIdx.x / per_matrix % out.batch;
  const int split = blockIdx.x / per_matrix / out.batch;
  const int first = tile / (kGroup * args.tiles_n) * kGroup;
  const int height = min(kGroup, args.tiles_m - first);
  const int within = tile - first * args.tiles_n;
  const int m0 = (first + within % height) * T::kM;
  const int n0 = within / height * T::kN;
  const int k_begin = split * args.split_k;
  const int k_end = min(args.K, k_begin + args.split_k);
  const int steps = (k_end - k_begin + T::kK - 1) / T::kK;

  const int warp = threadIdx.x / 32;
  const int warp_m = warp / T::kWarpsN * 64;
  const int warp_n = warp % T::kWarpsN * T::kWarpN;

  // Copies of a stage: 16 bytes each, of A then of B, half by half, to `write`.
  StageLoader<T, T::kM, T::kAmn> loader_a(
      args.a, args.a.matrix(matrix, out.group_of(matrix)), m0, out.M, k_begin, k_end);
  StageLoader<T, T::kN, T::kBmn> loader_b(
      args.b, args.b.matrix(matrix, out.group_of(matrix)), n0, out.N, k_begin, k_end);
  constexpr int kCopiesA = loader_a.kCopies;
  constexpr int kCopiesHalf = kCopiesA + loader_b.kCopies;
  constexpr int kCopies = T::kHalves * kCopiesHalf;
  const uint32_t end = shared + T::kStages * T::kStageBytes;
  const auto following = [&](uint32_t stage) {
    return stage + T::kStageBytes == end ? shared : stage + T::kStageBytes;
  };
  uint32_t write = shared;
  const auto copy = [&](int c) {
    const uint32_t half = write + c / kCopiesHalf * T::kHalfBytes;
    const int i = c % kCopiesHalf;
    if (i < kCopiesA) {
      loader_a.copy(half, i);
    } else {
      loader_b.copy(half + T::kABytes, i - kCopiesA);
    }
    if (i == kCopiesHalf - 1) {
      loader_a.advance();
      loader_b.advance();
    }
  };
  const auto finish_stage = [&] {
    copy_commit();
    write = following(write);
  };
  Promotion<T> promotion(reinterpret_cast<float*>(shared_raw + T::kStages * T::kStageBytes),
                         args.a,
                         args.b,
                         args.promote,
                         m0,
                         n0,
                         out.M,
                         out.N,
                         warp_m,
                         warp_n,
                         k_begin,
                         k_end);
  for (int step = 0; step < T::kStages - 1; ++step) {
#pragma unroll
    for (int c = 0; c < kCopies; ++c) {
      copy(c);
    }
    promotion.copy(step);
    finish_stage();
  }

  // Fragments: of A, then pairs of B, from the stage `read`.
  constexpr int kBlocksN = T::kWarpN / 8;
  constexpr int kPieces = 4 + kBlocksN / 2;
  const FragmentReader<true, T::kAmn> reader_a(warp_m);
  const FragmentReader<false, T::kBmn> reader_b(warp_n);
  uint32_t fragment_a[2][4][4];
  uint32_t fragment_b[2][kBlocksN / 2][4];
  uint32_t read = shared;
  const auto read_piece = [&](int piece, int slice) {
    const uint32_t half = read + slice / 4 * T::kHalfBytes;
    if (piece < 4) {
      reader_a.read(half, piece, slice % 4, fragment_a[slice % 2][piece]);
    } else {
      reader_b.read(half + T::kABytes, piece - 4, slice % 4, fragment_b[slice % 2][piece - 4]);
    }
  };
  copy_wait<T::kStages - 2>();
  __syncthreads();
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    read_piece(piece, 0);
  }

  float acc[4][kBlocksN][4] = {};
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int slice = 0; slice < T::kSlices; ++slice) {
      constexpr int kLast = T::kSlices - 1;
      constexpr int kCopySlices = T::kSlices / 2;  // early: it has to arrive within this stage
      promotion.begin_slice(slice);
      if (slice == kLast) {
        // The next stage has arrived for all, and all have read this one, which is copied to next.
        copy_wait<T::kStages - 2>();
        __syncthreads();
        read = following(read);
      }
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const int i = j % 2 == 0 ? x : 3 - x;  // neighbours share an operand
          promotion.fold_if_due(acc[i][j], slice, i, j);
          mma<In>(acc[i][j],
                  fragment_a[slice % 2][i],
                  fragment_b[slice % 2][j / 2][j % 2 * 2],
                  fragment_b[slice % 2][j / 2][j % 2 * 2 + 1]);
        }
        // Between products, which keep the Tensor Core busy meanwhile.
#pragma unroll
        for (int p = j * kPieces / kBlocksN; p < (j + 1) * kPieces / kBlocksN; ++p) {
          read_piece(p, (slice + 1) % T::kSlices);
        }
        if (slice < kCopySlices) {
          constexpr int kParts = kCopySlices * kBlocksN;
          const int part = slice * kBlocksN + j;
#pragma unroll
          for (int c = part * kCopies / kParts; c < (part + 1) * kCopies / kParts; ++c) {
            copy(c);
          }
        }
      }
      if (slice == kCopySlices - 1) {
        promotion.copy(T::kStages - 1);
        finish_stage();
      }
      promotion.end_slice(slice);
    }
  }
  copy_wait<0>();
  __syncthreads();  // the stages become staging

  float* staging = reinterpret_cast<float*>(shared_raw) + warp * 64 * T::kWarpN;
  const auto& sums = promotion.finish(acc);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    stage_fragments<T::kWarpN>(&sums[i][0][0], staging + 16 * i * T::kWarpN);
  }
  __syncwarp();
  if (args.direct) {
    store_staged<T::kWarpN>(out, staging, m0 + warp_m, n0 + warp_n, out.place(matrix), split);
  } else {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      finish_staged<T::kWarpN>(
          out, staging + 16 * i * T::kWarpN, m0 + warp_m + 16 * i, n0 + warp_n, out.place(matrix));
    }
  }
#endif
}

}  // namespace halftone::detail
