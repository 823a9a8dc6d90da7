// The gradient of an embedding's table adds a token's places in ascending order, whatever runs
// first. Tokens are dealt to owners, blocks that each look at all places and keep the ones of their
// tokens, in order: no block waits for another. Then every element of a row is one chain of
// additions: a warp takes the row of a rare token, whole blocks take columns of a frequent one and
// keep many places on their way from memory while they add. Integers alone are added atomically.
#include "core/cuda/reduce.cuh"
#include "core/integer.h"
#include "ops/embedding/embedding.h"
#include "ops/op.cuh"

namespace halftone {
namespace {

constexpr int kWarp = device::kWarpSize;

// ---- Places by token.

constexpr int kOwnerThreads = 1024;
constexpr int kRounds = 4;  // places that a thread looks at in one pass over a tile
constexpr int kTile = kOwnerThreads * kRounds;
constexpr int64_t kMaxOwners = 512;
constexpr int64_t kMaxOwned = 4096;
constexpr int kFrequent = 64;  // places

/// Token v belongs to owner v % owners, a power of two, and is its v / owners'th.
struct Buckets {
  int32_t owners;
  int32_t shift;  // log2 of it
  int32_t owned;  // by an owner, at most
  int64_t vocab;
  // The places of token v, ascending, are places[begin[v]] to places[end[v] - 1].
  int32_t* begin;
  int32_t* end;
  int32_t* places;
  // frequent[owner * owned + i]: the owner's tokens of more than kFrequent places.
  int32_t* frequent;
  int32_t* num_frequent;

  __device__ bool is_valid(int32_t token) const { return token >= 0 && token < vocab; }
  __device__ int owner_of(int32_t token) const { return token & (owners - 1); }
};

/// The sum over the threads before this one, of kOwnerThreads; `total` is that over all.
/// `warp_sums` may be used again after the next __syncthreads().
__device__ int32_t block_exclusive_sum(int32_t value, int32_t* warp_sums, int32_t& total) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto inclusive = [lane](int32_t sum) {
#pragma unroll
    for (int stride = 1; stride < kWarp; stride *= 2) {
      const int32_t below = __shfl_up_sync(device::kFullWarp, sum, stride);
      sum += lane >= stride ? below : 0;
    }
    return sum;
  };
  const int32_t in_warp = inclusive(value);
  if (lane == kWarp - 1) {
    warp_sums[threadIdx.x / kWarp] = in_warp;
  }
  __syncthreads();
  static_assert(kOwnerThreads == kWarp * kWarp, "a lane reads the sum of a warp");
  const int32_t warps = inclusive(warp_sums[lane]);
  total = __shfl_sync(device::kFullWarp, warps, kWarp - 1);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int32_t before = __shfl_sync(device::kFullWarp, warps, max(warp - 1, 0));
  return (warp > 0 ? before : 0) + in_warp - value;
}

/// A block is an owner.
__global__ void __launch_bounds__(kOwnerThreads)
    bucket_kernel(const __grid_constant__ Buckets buckets, int32_t n, const int32_t* tokens) {
  extern __shared__ int32_t next[];  // of each owned token: its places, then where the next goes
  __shared__ int32_t warp_sums[kWarp];
  __shared__ uint32_t matches[kTile];
  __shared__ int32_t num_frequent;
  const int owner = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = threadIdx.x; i < buckets.owned; i += kOwnerThreads) {
    next[i] = 0;
  }
  if (threadIdx.x == 0) {
    num_frequent = 0;
  }
  __syncthreads();

  int32_t of_earlier = 0;  // places of the owners before this one
  for (int32_t first = threadIdx.x; first < n; first += kTile) {
    int32_t token[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int32_t i = first + round * kOwnerThreads;
      token[round] = i < n ? tokens[i] : -1;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (buckets.is_valid(token[round])) {
        of_earlier += buckets.owner_of(token[round]) < owner;
        if (buckets.owner_of(token[round]) == owner) {
          atomicAdd(&next[token[round] >> buckets.shift], 1);
        }
      }
    }
  }
  int32_t base = 0;
  block_exclusive_sum(of_earlier, warp_sums, base);
  __syncthreads();
  for (int first = 0; first < buckets.owned; first += kOwnerThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int32_t count = i < buckets.owned ? next[i] : 0;
    int32_t total = 0;
    const int32_t begin = base + block_exclusive_sum(count, warp_sums, total);
    base += total;
    const int64_t token = (int64_t{i} << buckets.shift) + owner;
    if (i < buckets.owned && token < buckets.vocab) {
      next[i] = begin;
      buckets.begin[token] = begin;
      buckets.end[token] = begin + count;
      if (count > kFrequent) {
        const int32_t at = atomicAdd(&num_frequent, 1);
        buckets.frequent[int64_t{owner} * buckets.owned + at] = static_cast<int32_t>(token);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    buckets.num_frequent[owner] = num_frequent;
  }

  for (int32_t tile = 0; tile < n; tile += kTile) {
    // Places in order: by warp, round, lane.
    const int32_t first = tile + static_cast<int32_t>(threadIdx.x) / kWarp * (kWarp * kRounds);
    int32_t token[kRounds];
    uint32_t mine[kRounds];
    int32_t in_warp = 0;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int32_t i = first + round * kWarp + lane;
      token[round] = i < n ? tokens[i] : -1;
      mine[round] =
          __ballot_sync(device::kFullWarp,
                        buckets.is_valid(token[round]) && buckets.owner_of(token[round]) == owner);
      in_warp += __popc(mine[round]);
    }
    int32_t total = 0;
    int32_t at = block_exclusive_sum(lane == 0 ? in_warp : 0, warp_sums, total);
    at = __shfl_sync(device::kFullWarp, at, 0);
    const uint32_t below = (1u << lane) - 1;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if ((mine[round] >> lane & 1) != 0) {
        const int32_t to = at + __popc(mine[round] & below);
        const int32_t place = first + round * kWarp + lane;
        if (buckets.owned == 1) {
          buckets.places[next[0] + to] = place;
        } else {
          matches[to] = static_cast<uint32_t>(token[round] >> buckets.shift) * kTile +
                        static_cast<uint32_t>(place - tile);
        }
      }
      at += __popc(mine[round]);
    }
    __syncthreads();
    if (buckets.owned == 1) {
      if (threadIdx.x == 0) {
        next[0] += total;
      }
    } else if (threadIdx.x < kWarp) {
      for (int32_t i = lane; i - lane < total; i += kWarp) {
        const uint32_t active = __ballot_sync(device::kFullWarp, i < total);
        if (i < total) {
          const uint32_t index = matches[i] / kTile;
          const uint32_t peers = __match_any_sync(active, index);
          const int32_t to = next[index] + __popc(peers & below);
          buckets.places[to] = tile + static_cast<int32_t>(matches[i] % kTile);
          __syncwarp(active);
          if ((peers & below) == 0) {
            next[index] += __popc(peers);
          }
        }
        __syncwarp();
      }
    }
    __syncthreads();
  }
}

// ---- Rows of the table.

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / kWarp;
constexpr int kColumns = kWarp;     // of a frequent token, by one block
constexpr int kPlacesOfTile = 128;  // read together
constexpr int kUnroll = 8;          // columns of a rare token that a lane adds up side by side

/// While a warp adds up a tile of places, all warps have the next one's values on their way, and
/// know the places of the one after that.
template <bool accumulate, class T, class S>
__device__ void add_frequent(const Buckets& buckets,
                             int32_t token,
                             int64_t columns,
                             int64_t first_column,
                             const T* dy,
                             S* dtable,
                             float (&tile)[kPlacesOfTile][kColumns]) {
  constexpr int kRows = kPlacesOfTile / kRowWarps;  // of a warp
  static_assert(kRows <= kWarp, "a lane knows a row's place");
  const int column = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(threadIdx.x) / kWarp * kRows;
  const int64_t c = first_column + column;
  const int32_t end = buckets.end[token];
  const auto place_of_lane = [&](int32_t begin) {
    const int32_t i = begin + row + column;
    return column < kRows && i < end ? buckets.places[i] : -1;
  };
  float values[kRows];
  const auto read = [&](int32_t places) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int32_t place = __shfl_sync(device::kFullWarp, places, r);
      values[r] = place >= 0 && c < columns ? widen(dy[int64_t{place} * columns + c])
                                            : 0.0f;  // adding it changes nothing
    }
  };
  int32_t begin = buckets.begin[token];
  read(place_of_lane(begin));
  int32_t next = place_of_lane(begin + kPlacesOfTile);
  float sum = 0.0f;
  for (; begin < end; begin += kPlacesOfTile) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      tile[row + r][column] = values[r];
    }
    __syncthreads();
    read(next);
    next = place_of_lane(begin + 2 * kPlacesOfTile);
    if (threadIdx.x < kWarp) {
#pragma unroll 32
      for (int r = 0; r < kPlacesOfTile; ++r) {
        sum += tile[r][column];
      }
    }
    __syncthreads();
  }
  if (threadIdx.x < kWarp && c < columns) {
    put<accumulate>(dtable[token * columns + c], sum);
  }
}

template <bool accumulate, class T, class S>
__device__ void add_rare(
    const Buckets& buckets, int64_t token, int64_t columns, const T* dy, S* dtable) {
  const int32_t begin = buckets.begin[token];
  const int32_t end = buckets.end[token];
  if (end - begin > kFrequent || (accumulate && begin == end)) {
    return;
  }
  for (int64_t c0 = threadIdx.x % kWarp; c0 < columns; c0 += kWarp * kUnroll) {
    float sums[kUnroll] = {};
    for (int32_t i = begin; i < end; ++i) {
      const T* from = dy + int64_t{buckets.places[i]} * columns;
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        const int64_t c = c0 + j * kWarp;
        sums[j] += c < columns ? widen(from[c]) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int64_t c = c0 + j * kWarp;
      if (c < columns) {
        put<accumulate>(dtable[token * columns + c], sums[j]);
      }
    }
  }
}

/// The first owners * column_blocks blocks take the owners' frequent tokens, the others a rare
/// token a warp.
template <bool accumulate, class T, class S>
__global__ void __launch_bounds__(kRowThreads, 2)
    table_gradient_kernel(const __grid_constant__ Buckets buckets,
                          int64_t columns,
                          int64_t column_blocks,
                          const T* dy,
                          S* dtable) {
  __shared__ float tile[kPlacesOfTile][kColumns];
  const int64_t frequent_blocks = buckets.owners * column_blocks;
  if (blockIdx.x < frequent_blocks) {
    const int64_t owner = blockIdx.x / column_blocks;
    const int64_t first_column = blockIdx.x % column_blocks * kColumns;
    for (int i = 0; i < buckets.num_frequent[owner]; ++i) {
      const int32_t token = buckets.frequent[owner * buckets.owned + i];
      add_frequent<accumulate>(buckets, token, columns, first_column, dy, dtable, tile);
    }
    return;
  }
  const int64_t token =
      (blockIdx.x - frequent_blocks) * kRowWarps + static_cast<int64_t>(threadIdx.x) / kWarp;
  if (token < buckets.vocab) {
    add_rare<accumulate>(buckets, token, columns, dy, dtable);
  }
}

}  // namespace

void detail::table_gradient_cuda(const Tensor& tokens, const Tensor& dy, const GradSink& dtable) {
  const int64_t n = tokens.numel();
  const int64_t vocab = dtable.buffer.size(0);
  const int64_t columns = dtable.buffer.size(1);
  HALFTONE_CHECK(n <= INT32_MAX - kTile && vocab <= INT32_MAX,
                 "embedding: ",
                 n,
                 " tokens of a vocabulary of ",
                 vocab,
                 ", expected fewer than 2^31 of each at a time");
  int32_t shift = 0;
  while ((int64_t{1} << shift) < vocab &&
         ((int64_t{1} << shift) < kMaxOwners || ceil_div(vocab, int64_t{1} << shift) > kMaxOwned)) {
    ++shift;
  }
  const int64_t owners = int64_t{1} << shift;
  const int64_t owned = ceil_div(vocab, owners);
  const auto workspace = [&](int64_t size) {
    return Tensor::empty({size}, DType::i32, tokens.device(), MemoryCategory::workspace);
  };
  const Tensor begin = workspace(vocab);
  const Tensor end = workspace(vocab);
  const Tensor places = workspace(n);
  const Tensor frequent = workspace(owners * owned);
  const Tensor num_frequent = workspace(owners);
  const Buckets buckets{.owners = static_cast<int32_t>(owners),
                        .shift = shift,
                        .owned = static_cast<int32_t>(owned),
                        .vocab = vocab,
                        .begin = begin.data<int32_t>(),
                        .end = end.data<int32_t>(),
                        .places = places.data<int32_t>(),
                        .frequent = frequent.data<int32_t>(),
                        .num_frequent = num_frequent.data<int32_t>()};
  cuda::launch(bucket_kernel,
               {owners, kOwnerThreads, static_cast<size_t>(owned) * sizeof(int32_t)},
               buckets,
               static_cast<int32_t>(n),
               tokens.data<int32_t>());
  const int64_t column_blocks = ceil_div(columns, kColumns);
  dispatch_gpu(dy.dtype(), "embedding", [&]<class T>() {
    dispatch_gpu(dtable.buffer.dtype(), "embedding", [&]<class S>() {
      cuda::launch(dtable.accumulate ? table_gradient_kernel<true, T, S>
                                     : table_gradient_kernel<false, T, S>,
                   {owners * column_blocks + ceil_div(vocab, kRowWarps), kRowThreads},
                   buckets,
                   columns,
                   column_blocks,
                   dy.data<T>(),
                   dtable.buffer.data<S>());
    });
  });
}

}  // namespace halftone
