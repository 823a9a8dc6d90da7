// The gradient of the table must add a token's places in ascending order, whatever runs first. So
// each place learns its rank, the number of earlier places with the same token, by comparing with
// all of them: N^2 comparisons of integers, a fifth of a millisecond for 65,536 tokens on an H200.
#include "ops/embedding/embedding.h"

#include "ops/cast/cast.h"
#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

constexpr int kThreads = 256;
constexpr int kScanThreads = 1024;

struct Lookup {
  const int32_t* tokens;
  int64_t vocab;
  int64_t columns;
  int64_t period;  // positions repeat after so many tokens
  AnyElements table;
  AnyElements positions;  // null: none

  __device__ float at(int64_t place, int64_t column) const {
    const int64_t token = tokens[place];
    if (token < 0 || token >= vocab) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    const float value = table[token * columns + column];
    return positions.data == nullptr ? value : value + positions[place % period * columns + column];
  }
};

template <class Y>
struct LookupElements {
  Lookup lookup;
  Y* y;

  template <int N>
  __device__ void operator()(int64_t i) const {
    float values[N];
    int64_t place = i;
    int64_t column = device::split(place, lookup.columns);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      values[j] = lookup.at(place, column);
      if (++column == lookup.columns) {
        column = 0;
        ++place;
      }
    }
    put_pack<false>(values, y + i);
  }
};

// rank[i] = earlier places of token[i]; counts[v] += places of token v.
__global__ void rank_kernel(
    int64_t n, int64_t vocab, const int32_t* tokens, int32_t* rank, int32_t* counts) {
  __shared__ int32_t tile[kThreads];
  for (int64_t first = int64_t{blockIdx.x} * kThreads; first < n;
       first += int64_t{gridDim.x} * kThreads) {
    const int64_t i = first + threadIdx.x;
    const int32_t own = i < n ? tokens[i] : -1;
    int32_t earlier = 0;
    for (int64_t begin = 0; begin <= first; begin += kThreads) {
      tile[threadIdx.x] = begin + threadIdx.x < n ? tokens[begin + threadIdx.x] : -1;
      __syncthreads();
      const int count = begin == first ? static_cast<int>(threadIdx.x) : kThreads;
      for (int j = 0; j < count; ++j) {
        earlier += tile[j] == own;
      }
      __syncthreads();
    }
    if (i < n) {
      rank[i] = earlier;
      if (own >= 0 && own < vocab) {
        atomicAdd(&counts[own], 1);  // integers: any order gives the same
      }
    }
  }
}

// begin[v] = places of the tokens below v, begin[vocab] = all: by one block.
__global__ void scan_kernel(int64_t vocab, const int32_t* counts, int32_t* begin) {
  __shared__ int32_t sums[kScanThreads];
  const int64_t per_thread = (vocab + kScanThreads - 1) / kScanThreads;
  const int64_t first = min(vocab, per_thread * threadIdx.x);
  const int64_t last = min(vocab, first + per_thread);
  int32_t own = 0;
  for (int64_t v = first; v < last; ++v) {
    own += counts[v];
  }
  sums[threadIdx.x] = own;
  __syncthreads();
  for (int stride = 1; stride < kScanThreads; stride *= 2) {
    const int32_t below = static_cast<int>(threadIdx.x) >= stride ? sums[threadIdx.x - stride] : 0;
    __syncthreads();
    sums[threadIdx.x] += below;
    __syncthreads();
  }
  int32_t before = sums[threadIdx.x] - own;
  for (int64_t v = first; v < last; ++v) {
    begin[v] = before;
    before += counts[v];
  }
  if (threadIdx.x == kScanThreads - 1) {
    begin[vocab] = sums[kScanThreads - 1];
  }
}

__global__ void place_kernel(int64_t n,
                             int64_t vocab,
                             const int32_t* tokens,
                             const int32_t* rank,
                             const int32_t* begin,
                             int32_t* places) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kThreads) {
    const int32_t token = tokens[i];
    if (token >= 0 && token < vocab) {
      places[begin[token] + rank[i]] = static_cast<int32_t>(i);
    }
  }
}

// A block takes a row of the table.
template <bool accumulate, class S>
__global__ void table_gradient_kernel(int64_t vocab,
                                      int64_t columns,
                                      const int32_t* begin,
                                      const int32_t* places,
                                      AnyElements dy,
                                      S* dtable) {
  for (int64_t v = blockIdx.x; v < vocab; v += gridDim.x) {
    const int32_t first = begin[v];
    const int32_t last = begin[v + 1];
    if (accumulate && first == last) {
      continue;
    }
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      float sum = 0.0f;
      for (int32_t i = first; i < last; ++i) {
        sum += dy[int64_t{places[i]} * columns + c];
      }
      put<accumulate>(dtable[v * columns + c], sum);
    }
  }
}

struct PositionTerm {
  AnyElements dy;
  int64_t row_elements;
  __device__ float operator()(int64_t b, int64_t i) const { return dy[b * row_elements + i]; }
};

}  // namespace

void detail::embedding_cuda(const Tensor& tokens,
                            const Tensor& table,
                            const Tensor& positions,
                            const Tensor& y) {
  const bool placed = positions.defined();
  const Lookup lookup{tokens.data<int32_t>(),
                      table.size(0),
                      table.size(1),
                      placed ? tokens.size(1) : 1,
                      any_elements("embedding", table),
                      placed ? any_elements("embedding", positions) : AnyElements()};
  dispatch_gpu(y.dtype(), "embedding", [&]<class Y>() {
    launch_elements<pack_of(sizeof(Y))>(
        y.numel(), LookupElements<Y>{lookup, y.data<Y>()}, {y.raw()});
  });
}

void detail::table_gradient_cuda(const Tensor& tokens, const Tensor& dy, const GradSink& dtable) {
  const int64_t n = tokens.numel();
  const int64_t vocab = dtable.buffer.size(0);
  const int64_t columns = dtable.buffer.size(1);
  HALFTONE_CHECK(n <= INT32_MAX, "embedding: ", n, " tokens at a time, expected fewer than 2^31");
  const auto workspace = [&](int64_t size) {
    return Tensor::empty({size}, DType::i32, tokens.device(), MemoryCategory::workspace);
  };
  const Tensor rank = workspace(n);
  const Tensor places = workspace(n);
  const Tensor counts = workspace(vocab);
  const Tensor begin = workspace(vocab + 1);
  fill_zero(counts);
  const cuda::Grid by_place{cuda::blocks_for(n, kThreads), kThreads};
  cuda::launch(rank_kernel,
               by_place,
               n,
               vocab,
               tokens.data<int32_t>(),
               rank.data<int32_t>(),
               counts.data<int32_t>());
  cuda::launch(
      scan_kernel, {1, kScanThreads}, vocab, counts.data<int32_t>(), begin.data<int32_t>());
  cuda::launch(place_kernel,
               by_place,
               n,
               vocab,
               tokens.data<int32_t>(),
               rank.data<int32_t>(),
               begin.data<int32_t>(),
               places.data<int32_t>());
  dispatch_gpu(dtable.buffer.dtype(), "embedding", [&]<class S>() {
    const auto kernel =
        dtable.accumulate ? table_gradient_kernel<true, S> : table_gradient_kernel<false, S>;
    cuda::launch(kernel,
                 {cuda::blocks_for(vocab, 1), kThreads},
                 vocab,
                 columns,
                 begin.data<int32_t>(),
                 places.data<int32_t>(),
                 any_elements("embedding", dy),
                 dtable.buffer.data<S>());
  });
}

void detail::position_gradient_cuda(const Tensor& tokens,
                                    const Tensor& dy,
                                    const GradSink& dpositions) {
  const int64_t row_elements = tokens.size(1) * dy.size(-1);  // of one sequence
  const Tensor sums =
      Tensor::empty({row_elements}, DType::f32, dy.device(), MemoryCategory::workspace);
  device::column_sums(tokens.size(0),
                      row_elements,
                      PositionTerm{any_elements("embedding", dy), row_elements},
                      1.0f,
                      sums.data<float>(),
                      dy.device());
  const Tensor& all = dpositions.buffer;
  if (!dpositions.accumulate) {
    fill_zero(all);  // positions past the sequence
  }
  convert_into(sums, all.view({row_elements}, {1}, 0), dpositions.accumulate);
}

}  // namespace halftone
