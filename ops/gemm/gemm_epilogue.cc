#include "ops/gemm/gemm_epilogue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <type_traits>

#include "core/check.h"
#include "core/formats.h"
#include "core/math.h"
#include "core/reduce.h"
#include "ops/gemm/activation.h"

namespace halftone::detail {
namespace {

constexpr int64_t kStrip =
    256;  // columns handled at a time, so that the passes below stay in the L1 cache

template <class T>
void load(DType dtype, const void* data, int64_t offset, int64_t length, T* out) {
  const auto convert = [&]<class S>(const S* in, auto value_of) {
    for (int64_t j = 0; j < length; ++j) {
      out[j] = static_cast<T>(value_of(in[offset + j]));
    }
  };
  switch (dtype) {
    case DType::f32:
      return convert(static_cast<const float*>(data), [](float x) { return x; });
    case DType::f64:
      return convert(static_cast<const double*>(data), [](double x) { return x; });
    case DType::bf16:
      return convert(static_cast<const BFloat16*>(data),
                     [](BFloat16 x) { return decode(kBf16, x.bits); });
    case DType::f16:
      return convert(static_cast<const Half*>(data), [](Half x) { return decode(kFp16, x.bits); });
    default:
      throw std::logic_error(concat("gemm: cannot read ", dtype));
  }
}

template <class T>
void store(DType dtype, const T* in, int64_t length, void* data, int64_t offset) {
  const auto convert = [&]<class S>(S* out, auto code_of) {
    for (int64_t j = 0; j < length; ++j) {
      out[offset + j] = code_of(in[j]);
    }
  };
  switch (dtype) {
    case DType::f32:
      return convert(static_cast<float*>(data), [](T x) { return static_cast<float>(x); });
    case DType::f64:
      return convert(static_cast<double*>(data), [](T x) { return static_cast<double>(x); });
    case DType::bf16:
      return convert(static_cast<BFloat16*>(data),
                     [](T x) { return BFloat16{static_cast<uint16_t>(encode(kBf16, x))}; });
    case DType::f16:
      return convert(static_cast<Half*>(data),
                     [](T x) { return Half{static_cast<uint16_t>(encode(kFp16, x))}; });
    default:
      throw std::logic_error(concat("gemm: cannot write ", dtype));
  }
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
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t row = tile.batch * p.d_batch_stride + (tile.m0 + i) * p.d_stride;
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
  const auto sum = [&]<class T>(T* sums, auto value_at) {
    column_sum(
        p.M, p.N, [&](int64_t m, int64_t n) -> T { return value_at(m * p.d_stride + n); }, sums);
  };
  float* const sums = static_cast<float*>(p.epilogue.column_sums);
  switch (p.d_dtype) {
    case DType::f32:
      return sum(sums, [d = static_cast<const float*>(p.d)](int64_t i) { return d[i]; });
    case DType::bf16:
      return sum(sums, [d = static_cast<const BFloat16*>(p.d)](int64_t i) {
        return decode(kBf16, d[i].bits);
      });
    case DType::f16:
      return sum(sums, [d = static_cast<const Half*>(p.d)](int64_t i) {
        return decode(kFp16, d[i].bits);
      });
    case DType::f64:
      return sum(static_cast<double*>(p.epilogue.column_sums),
                 [d = static_cast<const double*>(p.d)](int64_t i) { return d[i]; });
    default:
      throw std::logic_error(concat("gemm: D of ", p.d_dtype));
  }
}

template void finish_tile(const GemmProblem&, const GemmRegion&, float*, int64_t);
template void finish_tile(const GemmProblem&, const GemmRegion&, double*, int64_t);

}  // namespace halftone::detail
