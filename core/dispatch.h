// From a run-time DType to a compile-time type: the only switch over dtypes in the project. The
// body is a generic lambda,
//   dispatch_floating(x.dtype(), "gelu", [&]<class T>() { gelu_loop(x.data<T>(), ...); });
// Arithmetic happens in ComputeType<T>: float for f32 and the 16-bit types, double for the rest.
// widen() and narrow<T>() move one value between storage and arithmetic; narrow rounds to nearest
// even.
#pragma once

#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "core/check.h"
#include "core/convert.h"
#include "core/dtype.h"

namespace halftone {

template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, BFloat16> ||
                                           std::is_same_v<T, Half>,
                                       float,
                                       double>;

template <class T>
HALFTONE_HD_INLINE ComputeType<T> widen(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    return to_float(value);
  } else {
    return static_cast<ComputeType<T>>(value);
  }
}

template <class T>
HALFTONE_HD_INLINE T narrow(ComputeType<T> value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    return from_float<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class Body>
decltype(auto) dispatch_floating(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::bf16:
      return body.template operator()<BFloat16>();
    case DType::f16:
      return body.template operator()<Half>();
    default:
      throw std::invalid_argument(
          concat(op, ": dtype ", dtype, ", expected f32, f64, bf16 or f16"));
  }
}

template <class Body>
decltype(auto) dispatch_all(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::u8:
      return body.template operator()<uint8_t>();
    case DType::u16:
      return body.template operator()<uint16_t>();
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::i64:
      return body.template operator()<int64_t>();
    default:
      return dispatch_floating(dtype, op, std::forward<Body>(body));
  }
}

}  // namespace halftone
