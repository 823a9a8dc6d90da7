// Rows of a table looked up on a GPU, and the gradient of positions; the table's is in
// embedding_backward.cu.
#include "ops/embedding/embedding.h"

#include "core/cuda/reduce.cuh"
#include "ops/op.cuh"

namespace halftone {
namespace {

constexpr int kThreads = 256;

/// y[place] = table[token] + positions[place % period], by packs that lie within a row.
template <class T, class Y>
struct Lookup {
  const int32_t* tokens;
  int64_t vocab;
  int64_t columns;
  int64_t period;  // positions repeat after so many tokens
  const T* table;
  const T* positions;  // null: none
  Y* y;

  template <int N>
  __device__ void operator()(int64_t i) const {
    int64_t place = i;
    const int64_t column = device::split(place, columns);
    const int64_t token = tokens[place];
    const bool is_valid = token >= 0 && token < vocab;
    const int64_t row = (is_valid ? token : 0) * columns + column;
    const int64_t position = device::split(place, period) * columns + column;
    T from_table[N];
    T from_positions[N] = {};
    device::load(table + row, from_table);
    if (positions != nullptr) {
      device::load(positions + position, from_positions);
    }
    float values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float value = widen(from_table[j]);
      const float sum = positions == nullptr ? value : value + widen(from_positions[j]);
      values[j] = is_valid ? sum : std::numeric_limits<float>::quiet_NaN();
    }
    put_pack<false>(values, y + i);
  }
};

/// A thread takes an element of the positions: the column tree over the batch, or 0 for
/// positions past the sequence.
template <bool accumulate, class T, class S>
__global__ void __launch_bounds__(kThreads) position_gradient_kernel(
    int64_t batch, int64_t row_elements, int64_t all_elements, const T* dy, S* dpositions) {
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all_elements; i += threads) {
    float sum = 0.0f;
    for (int64_t first = 0; i < row_elements && first < batch; first += kColumnPanel) {
      float sixteens[kColumnPanel / 16];
#pragma unroll
      for (int s = 0; s < kColumnPanel / 16; ++s) {
        const int64_t b = first + 16 * s;
        sixteens[s] =
            b < batch
                ? device::sixteen_row_sum<float>(
                      batch - b, [&](int64_t r) { return widen(dy[(b + r) * row_elements + i]); })
                : 0.0f;
      }
      const float panel = device::panel_of_sixteens(sixteens, 1);
      sum = first == 0 ? panel : sum + panel;
    }
    put<accumulate>(dpositions[i], sum);
  }
}

}  // namespace

void detail::embedding_cuda(const Tensor& tokens,
                            const Tensor& table,
                            const Tensor& positions,
                            const Tensor& y) {
  dispatch_gpu(table.dtype(), "embedding", [&]<class T>() {
    dispatch_gpu(y.dtype(), "embedding", [&]<class Y>() {
      const bool placed = positions.defined();
      const Lookup<T, Y> lookup{tokens.data<int32_t>(),
                                table.size(0),
                                table.size(1),
                                placed ? tokens.size(1) : 1,
                                table.data<T>(),
                                placed ? positions.data<T>() : nullptr,
                                y.data<Y>()};
      constexpr int kPack = pack_of(std::min(sizeof(T), sizeof(Y)));
      if (table.size(1) % kPack == 0) {
        launch_elements<kPack>(y.numel(), lookup, {y.raw(), lookup.table, lookup.positions});
      } else {
        launch_elements<1>(y.numel(), lookup, {});
      }
    });
  });
}

void detail::position_gradient_cuda(const Tensor& tokens,
                                    const Tensor& dy,
                                    const GradSink& dpositions) {
  const int64_t row_elements = tokens.size(1) * dy.size(-1);
  const int64_t all_elements = dpositions.accumulate ? row_elements : dpositions.buffer.numel();
  dispatch_gpu(dy.dtype(), "embedding", [&]<class T>() {
    dispatch_gpu(dpositions.buffer.dtype(), "embedding", [&]<class S>() {
      cuda::launch(dpositions.accumulate ? position_gradient_kernel<true, T, S>
                                         : position_gradient_kernel<false, T, S>,
                   {cuda::blocks_for(all_elements, kThreads), kThreads},
                   tokens.size(0),
                   row_elements,
                   all_elements,
                   dy.data<T>(),
                   dpositions.buffer.data<S>());
    });
  });
}

}  // namespace halftone
