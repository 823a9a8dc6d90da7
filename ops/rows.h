// Rows of a contiguous tensor moved to and from arrays of the compute type (C: float or double),
// for ops whose tensors differ in dtype: one loop per storage type instead of one op per
// combination of types. The dtype is looked at once a row.
#pragma once

#include "ops/copy/strided_copy.h"

namespace halftone {

template <class C>
class Rows {
 public:
  Rows() = default;
  /// x seen as [rows, columns].
  Rows(const Tensor& x, int64_t columns) : dtype_(x.dtype()), data_(x.raw()), columns_(columns) {}

  /// values[0, columns) = the row, widened.
  void load(int64_t row, C* values) const {
    dispatch_floating(dtype_, "rows", [&]<class T>() {
      const T* from = static_cast<const T*>(data_) + row * columns_;
      for (int64_t i = 0; i < columns_; ++i) {
        values[i] = static_cast<C>(widen(from[i]));
      }
    });
  }

  /// The row = values, or += values, rounded once.
  void store(int64_t row, const C* values, bool accumulate = false) const {
    dispatch_floating(dtype_, "rows", [&]<class T>() {
      T* to = static_cast<T*>(data_) + row * columns_;
      if (accumulate) {
        for (int64_t i = 0; i < columns_; ++i) {
          put<true>(to[i], static_cast<ComputeType<T>>(values[i]));
        }
      } else {
        for (int64_t i = 0; i < columns_; ++i) {
          put<false>(to[i], static_cast<ComputeType<T>>(values[i]));
        }
      }
    });
  }

 private:
  DType dtype_ = DType::f32;
  void* data_ = nullptr;
  int64_t columns_ = 0;
};

/// Calls body.operator()<C>() with the compute type of a dtype.
template <class Body>
void dispatch_compute(DType dtype, Body&& body) {
  if (dtype == DType::f64) {
    body.template operator()<double>();
  } else {
    body.template operator()<float>();
  }
}

}  // namespace halftone
