// Rows of a table looked up on a GPU, and the gradient of positions; the table's is in
// embedding_backward.cu.
#include "ops/embedding/embedding.h"

#include "ops/cast/cast.h"
#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

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
