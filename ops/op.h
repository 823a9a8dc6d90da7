// What the ops share on the CPU: checks of their inputs, loops over elements and rows by threads,
// and gradients written into sinks. Every element is computed in ComputeType<T> and rounded once,
// on store, whether a gradient is overwritten or added to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/autograd.h"
#include "core/convert.h"
#include "core/dispatch.h"
#include "core/parallel.h"

namespace halftone {

/// Throws std::invalid_argument unless x has elements, in row-major order.
inline void check_contiguous(std::string_view op, std::string_view name, const Tensor& x) {
  HALFTONE_CHECK(x.defined(), op, ": ", name, " is undefined");
  HALFTONE_CHECK(x.is_contiguous(),
                 op,
                 ": ",
                 name,
                 " of shape ",
                 x.shape(),
                 " is not contiguous; copy it with contiguous()");
}

/// The same, and unless x is of a floating type.
inline void check_floating(std::string_view op, std::string_view name, const Tensor& x) {
  check_contiguous(op, name, x);
  HALFTONE_CHECK(is_floating(x.dtype()),
                 op,
                 ": ",
                 name,
                 " has dtype ",
                 x.dtype(),
                 ", expected f32, f64, bf16 or f16");
}

/// The same, and unless x has this dtype and shape.
inline void check_tensor(
    std::string_view op, std::string_view name, const Tensor& x, DType dtype, const Shape& shape) {
  check_contiguous(op, name, x);
  HALFTONE_CHECK(x.dtype() == dtype && x.shape() == shape,
                 op,
                 ": ",
                 name,
                 " is ",
                 x.dtype(),
                 " ",
                 x.shape(),
                 ", expected ",
                 dtype,
                 " ",
                 shape);
}

/// Throws std::logic_error for a tensor on a GPU: the op has no kernel there.
inline void require_cpu(std::string_view op, const Tensor& x) {
  if (!x.is_cpu()) {
    throw_not_on_gpu(op);
  }
}

/// The dtype of what is computed from x and stays unrounded: f32, and f64 for f64.
inline DType compute_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Elements a thread picks at a time: some microseconds of work, and small enough for a cache.
inline constexpr int64_t kElementGrain = 8192;

/// Calls fn(i) for every i in [0, n); the loop vectorises if fn does.
template <class Fn>
void for_elements(int64_t n, const Fn& fn) {
  parallel_for_range(n, kElementGrain, [&fn](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      fn(i);
    }
  });
}

/// Calls fn(row) for every row of `columns` elements.
template <class Fn>
void for_rows(int64_t rows, int64_t columns, const Fn& fn) {
  const int64_t grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, columns));
  parallel_for_range(rows, grain, [&fn](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      fn(row);
    }
  });
}

/// Rows of a tensor seen as [rows, columns] with its last axis as columns.
inline int64_t num_rows(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) {
    rows *= x.size(i);
  }
  return rows;
}

/// One element of a gradient: overwritten, or added to.
template <bool accumulate, class S>
HALFTONE_HD_INLINE void put(S& out, ComputeType<S> value) {
  if constexpr (accumulate) {
    out = narrow<S>(widen(out) + value);
  } else {
    out = narrow<S>(value);
  }
}

/// Elements converted together where a type has array conversions.
inline constexpr int64_t kConvertBlock = 256;

/// out[i] = value(i), or += value(i), for i in [0, n), in ascending order. FP16 is rounded by
/// blocks, with the processor's own instruction where it has one (core/convert.h): the same bits,
/// faster.
template <bool accumulate, class S, class Value>
void put_run(S* out, int64_t n, const Value& value) {
  if constexpr (std::is_same_v<S, Half> && !accumulate) {
    float block[kConvertBlock];
    for (int64_t begin = 0; begin < n; begin += kConvertBlock) {
      const int64_t count = std::min(kConvertBlock, n - begin);
      for (int64_t i = 0; i < count; ++i) {
        block[i] = value(begin + i);
      }
      convert(block, static_cast<size_t>(count), out + begin);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      put<accumulate>(out[i], value(i));
    }
  }
}

/// values[i] = in[i], widened, for i in [0, n).
template <class T, class C>
void load_run(const T* in, int64_t n, C* values) {
  if constexpr (std::is_same_v<T, Half> && std::is_same_v<C, float>) {
    convert(in, static_cast<size_t>(n), values);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      values[i] = static_cast<C>(widen(in[i]));
    }
  }
}

/// Calls body.operator()<accumulate>(S* out) with the sink's elements and what is to be done with
/// them. A gradient belonging to a tensor of T is stored as T, or as ComputeType<T> where the
/// tensor is a parameter.
template <class T, class Body>
void with_sink(const GradSink& sink, Body&& body) {
  const auto typed = [&]<class S>() {
    S* out = sink.buffer.data<S>();
    if (sink.accumulate) {
      body.template operator()<true>(out);
    } else {
      body.template operator()<false>(out);
    }
  };
  if (sink.buffer.dtype() == kDTypeOf<T>) {
    typed.template operator()<T>();
  } else {
    typed.template operator()<ComputeType<T>>();
  }
}

/// Writes value(i) to every element i of the gradient of a tensor of T; does nothing where no
/// gradient is wanted.
template <class T, class Value>
void write_gradient(const GradSink& sink, const Value& value) {
  if (!sink) {
    return;
  }
  with_sink<T>(sink, [&]<bool accumulate>(auto* out) {
    parallel_for_range(
        sink.buffer.numel(), kElementGrain, [out, &value](int64_t begin, int64_t end) {
          put_run<accumulate>(
              out + begin, end - begin, [value, begin](int64_t i) { return value(begin + i); });
        });
  });
}

/// y[i] = f(x[i]), like x, on the CPU. f is called with ComputeType.
template <class F>
Tensor map(std::string_view op, const Tensor& x, const F& f) {
  check_floating(op, "x", x);
  require_cpu(op, x);
  Tensor y = empty_like(x);
  dispatch_floating(x.dtype(), op, [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    parallel_for_range(x.numel(), kElementGrain, [=, &f](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kConvertBlock) {
        ComputeType<T> block[kConvertBlock];
        const int64_t count = std::min(kConvertBlock, end - first);
        load_run(in + first, count, block);
        put_run<false>(out + first, count, [&](int64_t i) { return f(block[i]); });
      }
    });
  });
  return y;
}

/// dx[i] = dy[i] * slope(saved[i]), on the CPU.
template <class Slope>
void map_gradient(const Tensor& saved, const Tensor& dy, const GradSink& dx, const Slope& slope) {
  dispatch_floating(dy.dtype(), "map_gradient", [&]<class T>() {
    write_gradient<T>(dx, [slope, in = saved.data<T>(), g = dy.data<T>()](int64_t i) {
      return widen(g[i]) * slope(widen(in[i]));
    });
  });
}

namespace detail {

/// The loops of the two below on a GPU. ops/op.cuh defines them; the .cu file of an op instantiates
/// them for its functions.
template <class F>
void map_cuda(const Tensor& x, const Tensor& y);
template <class Slope>
void map_gradient_cuda(const Tensor& saved, const Tensor& dy, const GradSink& dx);

}  // namespace detail

/// The same on either device, with a function that has a name and no state: y[i] = F()(x[i]).
template <class F>
Tensor map(std::string_view op, const Tensor& x) {
  check_floating(op, "x", x);
  if (x.is_cpu()) {
    return map(op, x, F());
  }
  Tensor y = empty_like(x);
  if constexpr (kHasCuda) {  // only declared in a build without CUDA
    detail::map_cuda<F>(x, y);
  }
  return y;
}

/// dx[i] = dy[i] * Slope()(saved[i]).
template <class Slope>
void map_gradient(const Tensor& saved, const Tensor& dy, const GradSink& dx) {
  if (dy.is_cpu()) {
    map_gradient(saved, dy, dx, Slope());
  } else if constexpr (kHasCuda) {
    detail::map_gradient_cuda<Slope>(saved, dy, dx);
  }
}

}  // namespace halftone
