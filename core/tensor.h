// A tensor: a shape and strides over shared storage, with a dtype and a device. A Tensor is a
// handle: copies share the elements. What autograd knows about a tensor hangs from the handle as
// well (core/autograd.h). Strides count elements; most operations want contiguous tensors and say
// so.
#pragma once

#include <memory>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/storage.h"

namespace halftone {

struct GradMeta;

class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised contiguous elements.
  static Tensor empty(const Shape& shape,
                      DType dtype,
                      Device device = {},
                      MemoryCategory category = MemoryCategory::activations);
  static Tensor zeros(const Shape& shape,
                      DType dtype,
                      Device device = {},
                      MemoryCategory category = MemoryCategory::activations);
  /// A CPU tensor with a copy of `values`, whose number must be the shape's.
  template <class T>
  static Tensor from(const std::vector<T>& values,
                     const Shape& shape,
                     MemoryCategory category = MemoryCategory::activations) {
    HALFTONE_CHECK(static_cast<int64_t>(values.size()) == shape.numel(),
                   "Tensor::from: ",
                   values.size(),
                   " values for shape ",
                   shape);
    Tensor t = empty(shape, kDTypeOf<T>, {}, category);
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int i) const { return shape_[i]; }
  int64_t stride(int i) const { return strides_[static_cast<size_t>(i < 0 ? i + rank() : i)]; }
  int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return numel() * static_cast<int64_t>(size_of(dtype_)); }
  Device device() const { return storage_->device(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_contiguous() const;

  /// The first element. The typed forms check the dtype.
  void* raw() const;
  template <class T>
  T* data() const {
    HALFTONE_CHECK(dtype_ == kDTypeOf<T>,
                   "Tensor::data: the tensor holds ",
                   dtype_,
                   ", asked for ",
                   kDTypeOf<T>);
    return static_cast<T*>(raw());
  }
  /// The only element of a tensor on the CPU, widened to double.
  double item() const;
  /// All elements in row-major order, widened to double; copies from a GPU (and waits for it).
  std::vector<double> to_doubles() const;

  /// Another view of the same elements, without autograd: `offset` elements further on, with its
  /// own shape and strides.
  Tensor view(const Shape& shape, std::vector<int64_t> strides, int64_t offset) const;
  /// A contiguous tensor's elements under another shape of as many elements, without autograd.
  Tensor view(const Shape& shape) const;
  /// Whether other tensors share its memory.
  bool is_shared() const { return storage_.use_count() > 1; }
  /// The same elements, unknown to autograd: what a closure captures when it needs its own output.
  Tensor detach() const;

  /// Marks a leaf whose gradient is wanted, or says whether a gradient will flow here.
  Tensor& set_requires_grad();
  bool requires_grad() const;
  /// The leaf's gradient, undefined before any backward pass wrote it.
  Tensor grad() const;
  /// Gradients of this leaf go straight into `buffer` (same shape; f32, or f64 for an f64 leaf).
  void bind_grad(const Tensor& buffer);
  /// The next backward pass overwrites the leaf's gradient instead of adding to it.
  void reset_grad();
  /// Whether a backward pass has written the gradient since the last reset.
  bool grad_written() const;

  const std::shared_ptr<GradMeta>& grad_meta() const { return grad_; }
  void set_grad_meta(std::shared_ptr<GradMeta> meta) { grad_ = std::move(meta); }

 private:
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<GradMeta> grad_;
  Shape shape_;
  std::vector<int64_t> strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::f32;
};

/// Row-major strides of a contiguous tensor.
std::vector<int64_t> contiguous_strides(const Shape& shape);

/// Uninitialised, with x's shape and device, and x's dtype unless another is given.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, DType dtype);

/// Copies elements (equal shape and dtype, both contiguous) within or across devices.
void copy(const Tensor& from, const Tensor& to);
/// Sets every byte of a contiguous tensor to zero.
void fill_zero(const Tensor& x);
/// The same elements on another device; x itself if it lives there.
Tensor to_device(const Tensor& x, Device device);

}  // namespace halftone
