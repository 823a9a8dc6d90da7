#include "ops/attention/online_attention.h"

#include <limits>
#include <vector>

#include "core/math.h"
#include "core/reduce.h"
#include "ops/attention/attention.h"
#include "ops/op.h"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

// The running state of one query.
template <class C>
struct Online {
  C max = -std::numeric_limits<C>::infinity();
  C sum = C(0);
  std::vector<C> output;  // sum of e^(score - max) v
};

// Takes in `n` keys whose scaled scores are given; v is the first's, rows `stride` apart.
template <class T, class C>
void take_tile(const C* scores, int64_t n, const T* v, int64_t stride, Online<C>& state) {
  const C max = maximum(state.max, row_max<C>(n, [=](int64_t j) { return scores[j]; }));
  const C shift = softmax_shift(max);
  const C rescale = math::exp(state.max - shift);  // 0 for the first tile
  std::vector<C> p(static_cast<size_t>(n));
  const C tile_sum = row_sum<C>(n, [&](int64_t j) {
    p[static_cast<size_t>(j)] = math::exp(scores[j] - shift);
    return p[static_cast<size_t>(j)];
  });
  state.max = max;
  state.sum = math::fma(state.sum, rescale, tile_sum);
  for (size_t c = 0; c < state.output.size(); ++c) {
    C out = state.output[c] * rescale;
    for (int64_t j = 0; j < n; ++j) {
      const C rounded = widen(narrow<T>(p[static_cast<size_t>(j)]));
      out = math::fma(rounded, widen(v[j * stride + static_cast<int64_t>(c)]), out);
    }
    state.output[c] = out;
  }
}

}  // namespace

OnlineAttention online_attention(const Tensor& qkv, int64_t heads, bool causal, int64_t key_tile) {
  const detail::AttentionShape shape = detail::attention_shape("online_attention", qkv, heads);
  HALFTONE_CHECK(
      key_tile >= 1, "online_attention: tiles of ", key_tile, " keys, expected 1 or more");
  require_cpu("online_attention", qkv);
  const int64_t length = shape.length;
  const int64_t d = shape.head_size;
  const int64_t columns = shape.columns();
  const OnlineAttention result{
      Tensor::empty({shape.batch, length, columns}, qkv.dtype()),
      Tensor::empty({shape.batch, heads, length}, compute_dtype(qkv.dtype()))};
  dispatch_floating(qkv.dtype(), "online_attention", [&]<class T>() {
    using C = ComputeType<T>;
    const C scale = math::divide(C(1), math::sqrt(static_cast<C>(d)));
    for_rows(shape.batch * heads * length, length * d, [&](int64_t row) {
      const int64_t query = row % length;
      const int64_t head = row / length % heads;
      const int64_t b = row / length / heads;
      const T* sequence = qkv.data<T>() + b * length * 3 * columns + head * d;
      const T* q = sequence + query * 3 * columns;
      const T* keys = sequence + columns;
      const T* values = sequence + 2 * columns;
      Online<C> state{.output = std::vector<C>(static_cast<size_t>(d), C(0))};
      std::vector<C> scores(static_cast<size_t>(key_tile));
      const int64_t visible = causal ? query + 1 : length;
      for (int64_t first = 0; first < visible; first += key_tile) {
        const int64_t n = std::min(key_tile, visible - first);
        for (int64_t j = 0; j < n; ++j) {
          const T* k = keys + (first + j) * 3 * columns;
          C product = C(0);
          for (int64_t c = 0; c < d; ++c) {
            product = math::fma(widen(q[c]), widen(k[c]), product);
          }
          scores[static_cast<size_t>(j)] = product * scale;
        }
        take_tile(scores.data(), n, values + first * 3 * columns, 3 * columns, state);
      }
      const C inverse_sum = state.sum == C(0) ? C(0) : math::divide(C(1), state.sum);
      T* y = result.y.data<T>() + (b * length + query) * columns + head * d;
      for (int64_t c = 0; c < d; ++c) {
        y[c] = narrow<T>(state.output[static_cast<size_t>(c)] * inverse_sum);
      }
      result.log_sum_exp.data<C>()[row] = state.max + math::log(state.sum);
    });
  });
  return result;
}

}  // namespace halftone
