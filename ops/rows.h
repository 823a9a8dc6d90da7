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
      load_run(static_cast<const T*>(data_) + row * columns_, columns_, values);
    });
  }

  /// The row = values, or += values, rounded once.
  void store(int64_t row, const C* values, bool accumulate = false) const {
    dispatch_floating(dtype_, "rows", [&]<class T>() {
      T* to = static_cast<T*>(data_) + row * columns_;
      const auto value = [values](int64_t i) { return static_cast<ComputeType<T>>(values[i]); };
      if (accumulate) {
        put_run<true>(to, columns_, value);
      } else {
        put_run<false>(to, columns_, value);
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
