// Copies between tensors of one shape and any strides: what transpose, slice, cast and contiguous
// are made of.
#pragma once

#include <type_traits>
#include <vector>

#include "ops/op.h"

namespace halftone {

/// One value in another storage type, rounded once to nearest even (from f64 too).
template <class D, class S>
D convert_to(S value) {
  if constexpr (std::is_same_v<D, S>) {
    return value;
  } else if constexpr (std::is_same_v<D, BFloat16>) {
    return {static_cast<uint16_t>(encode(kBf16, widen(value)))};
  } else if constexpr (std::is_same_v<D, Half>) {
    return {static_cast<uint16_t>(encode(kFp16, widen(value)))};
  } else {
    return static_cast<D>(widen(value));
  }
}

/// to[i] = from[i], or to[i] += from[i], for every index i of `shape`; strides count elements.
template <bool accumulate, class S, class D>
void strided_copy(const Shape& shape,
                  const S* from,
                  const std::vector<int64_t>& from_strides,
                  D* to,
                  const std::vector<int64_t>& to_strides) {
  const int64_t n = shape.rank() == 0 ? 1 : shape[-1];
  const int64_t from_step = shape.rank() == 0 ? 1 : from_strides.back();
  const int64_t to_step = shape.rank() == 0 ? 1 : to_strides.back();
  const auto run = [=](const S* a, D* b, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      if constexpr (accumulate) {
        put<true>(b[i * to_step], static_cast<ComputeType<D>>(widen(a[i * from_step])));
      } else {
        b[i * to_step] = convert_to<D>(a[i * from_step]);
      }
    }
  };
  if (n == 0 || shape.numel() == 0) {
    return;
  }
  const int64_t pieces = (n + kElementGrain - 1) / kElementGrain;  // of a row
  for_rows(shape.numel() / n * pieces, std::min(n, kElementGrain), [&](int64_t task) {
    const int64_t begin = task % pieces * kElementGrain;
    int64_t a = begin * from_step;
    int64_t b = begin * to_step;
    int64_t rest = task / pieces;
    for (int k = shape.rank() - 1; k-- > 0;) {
      const int64_t index = rest % shape[k];
      rest /= shape[k];
      a += index * from_strides[static_cast<size_t>(k)];
      b += index * to_strides[static_cast<size_t>(k)];
    }
    run(from + a, to + b, std::min(kElementGrain, n - begin));
  });
}

namespace detail {

/// strided_copy on a GPU; `to` starts `to_offset` elements on. Different dtypes are floating.
void strided_copy_cuda(const Shape& shape,
                       const Tensor& from,
                       const std::vector<int64_t>& from_strides,
                       const Tensor& to,
                       const std::vector<int64_t>& to_strides,
                       int64_t to_offset,
                       bool accumulate);

}  // namespace detail

/// A contiguous copy of x, whatever its strides and dtype.
inline Tensor contiguous_copy(const Tensor& x) {
  const Tensor y = empty_like(x);
  std::vector<int64_t> strides;
  for (int i = 0; i < x.rank(); ++i) {
    strides.push_back(x.stride(i));
  }
  const std::vector<int64_t> y_strides = contiguous_strides(y.shape());
  if (x.is_cpu()) {
    dispatch_all(x.dtype(), "copy", [&]<class T>() {
      strided_copy<false>(x.shape(), x.data<T>(), strides, y.data<T>(), y_strides);
    });
  } else if constexpr (kHasCuda) {
    detail::strided_copy_cuda(x.shape(), x, strides, y, y_strides, 0, false);
  }
  return y;
}

/// Writes the gradient `dy`, whose element i belongs to element `offset` + i * strides of x.
inline void strided_gradient(const Tensor& dy,
                             const GradSink& dx,
                             const std::vector<int64_t>& strides,
                             int64_t offset) {
  if (!dy.is_cpu()) {
    if constexpr (kHasCuda) {
      detail::strided_copy_cuda(dy.shape(),
                                dy,
                                contiguous_strides(dy.shape()),
                                dx.buffer,
                                strides,
                                offset,
                                dx.accumulate);
    }
    return;
  }
  dispatch_floating(dy.dtype(), "copy", [&]<class T>() {
    with_sink<T>(dx, [&]<bool accumulate>(auto* out) {
      strided_copy<accumulate>(
          dy.shape(), dy.data<T>(), contiguous_strides(dy.shape()), out + offset, strides);
    });
  });
}

}  // namespace halftone
