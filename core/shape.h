// The extents of a tensor, outermost first. A scalar has no dimensions and one element; a zero
// extent is allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <vector>

#include "core/check.h"

namespace halftone {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {
    for (const int64_t d : dims_) {
      HALFTONE_CHECK(d >= 0, "shape: negative extent in ", *this);
    }
  }

  int rank() const { return static_cast<int>(dims_.size()); }
  /// Extent `i`; negative counts from the back, so shape[-1] is the innermost.
  int64_t operator[](int i) const { return dims_[index(i)]; }
  int64_t& operator[](int i) { return dims_[index(i)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t d : dims_) {
      n *= d;
    }
    return n;
  }
  const std::vector<int64_t>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }

  friend bool operator==(const Shape&, const Shape&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '[';
    for (int i = 0; i < shape.rank(); ++i) {
      out << (i == 0 ? "" : ", ") << shape.dims_[i];
    }
    return out << ']';
  }

 private:
  size_t index(int i) const {
    const int j = i < 0 ? i + rank() : i;
    HALFTONE_CHECK(j >= 0 && j < rank(), "shape: no dimension ", i, " in ", *this);
    return static_cast<size_t>(j);
  }

  std::vector<int64_t> dims_;
};

}  // namespace halftone
