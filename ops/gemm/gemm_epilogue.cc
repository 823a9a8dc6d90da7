#include "ops/gemm/gemm_epilogue.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/dispatch.h"
#include "core/math.h"
#include "core/reduce.h"
#include "ops/gemm/activation.h"

namespace halftone::detail {
namespace {

constexpr int64_t kStrip =
    256;  // columns handled at a time, so that the passes below stay in the L1 cache

template <class T>
void load(DType dtype, const void* data, int64_t offset, int64_t length, T* out) {
  dispatch_floating(dtype, "gemm", [&]<class S>() {
    const S* in = static_cast<const S*>(data) + offset;
    if constexpr (std::is_same_v<T, float> && sizeof(S) == 2) {
      convert(in, static_cast<size_t>(length), out);
    } else {
      std::transform(in, in + length, out, [](S x) { return static_cast<T>(widen(x)); });
    }
  });
}

template <class T>
void store(DType dtype, const T* in, int64_t length, void* data, int64_t offset) {
  dispatch_floating(dtype, "gemm", [&]<class S>() {
    S* out = static_cast<S*>(data) + offset;
    if constexpr (std::is_same_v<T, float> && sizeof(S) == 2) {
      convert(in, static_cast<size_t>(length), out);
    } else {
      std::transform(
          in, in + length, out, [](T x) { return narrow<S>(static_cast<ComputeType<S>>(x)); });
    }
  });
}

template <class T>
void activate(Activation activation, T* v, int64_t length) {
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      std::transform(v, v + length, v, relu<T>);
      return;
    case Activation::gelu:
      std::transform(v, v + length, v, math::gelu<T>);
      return;
  }
}

template <class T>
void multiply_gradient(Activation activation, const T* pre, T* v, int64_t length) {
  const auto multiply = [](auto gradient) {
    return [gradient](T x, T p) { return x * gradient(p); };
  };
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      std::transform(v, v + length, pre, v, multiply([](T p) { return relu_grad(p); }));
      return;
    case Activation::gelu:
      std::transform(v, v + length, pre, v, multiply([](T p) { return math::gelu_grad(p); }));
      return;
  }
}

template <class T>
void add(const T* other, T* v, int64_t length) {
  for (int64_t j = 0; j < length; ++j) {
    v[j] += other[j];
  }
}

/// One row of at most kStrip columns from column n; `offset` is its place in D.
template <class T>
void finish_strip(const GemmProblem& p, int64_t n, int64_t offset, int64_t length, T* v) {
  const GemmEpilogue& e = p.epilogue;
  std::array<T, kStrip> other;
  if (e.bias != nullptr) {
    load(e.bias_dtype, e.bias, n, length, other.data());
    add(other.data(), v, length);
  }
  if (e.pre_activation != nullptr) {
    store(p.d_dtype, v, length, e.pre_activation, offset);
  }
  if (e.gradient_of != nullptr) {
    load(p.d_dtype, e.gradient_of, offset, length, other.data());
    multiply_gradient(e.activation, other.data(), v, length);
  } else {
    activate(e.activation, v, length);
  }
  if (e.residual != nullptr) {
    load(p.d_dtype, e.residual, offset, length, other.data());
    add(other.data(), v, length);
  }
  if (p.accumulate) {
    load(p.d_dtype, p.d, offset, length, other.data());
    add(other.data(), v, length);
  }
  store(p.d_dtype, v, length, p.d, offset);
}

}  // namespace

template <class T>
void finish_tile(const GemmProblem& p, const GemmRegion& tile, T* values, int64_t stride) {
  const int64_t matrix = matrix_offset(tile.batch, p.group, p.d_batch_stride, p.d_group_stride);
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t row = matrix + (tile.m0 + i) * p.d_stride;
    for (int64_t j = 0; j < tile.columns; j += kStrip) {
      const int64_t length = std::min(kStrip, tile.columns - j);
      const int64_t n = tile.n0 + j;
      finish_strip(p, n, row + n, length, values + i * stride + j);
    }
  }
}

void finish_column_sums(const GemmProblem& p) {
  if (p.epilogue.column_sums == nullptr) {
    return;
  }
  dispatch_floating(p.d_dtype, "gemm", [&]<class S>() {
    const S* d = static_cast<const S*>(p.d);
    column_sum(
        p.M,
        p.N,
        [=, stride = p.d_stride](int64_t m, int64_t n) { return widen(d[m * stride + n]); },
        static_cast<ComputeType<S>*>(p.epilogue.column_sums));
  });
}

template void finish_tile(const GemmProblem&, const GemmRegion&, float*, int64_t);
template void finish_tile(const GemmProblem&, const GemmRegion&, double*, int64_t);

}  // namespace halftone::detail
