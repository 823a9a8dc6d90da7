#include "core/tensor.h"

#include <algorithm>
#include <cstring>

#include "core/dispatch.h"

#ifdef HALFTONE_HAS_CUDA
#include "core/cuda/memory.h"
#endif

namespace halftone {

std::vector<int64_t> contiguous_strides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t next = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = next;
    next *= shape[i];
  }
  return strides;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device, MemoryCategory category) {
  Tensor t;
  t.storage_ =
      memory_pool(device).allocate(static_cast<size_t>(shape.numel()) * size_of(dtype), category);
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device, MemoryCategory category) {
  Tensor t = empty(shape, dtype, device, category);
  fill_zero(t);
  return t;
}

bool Tensor::is_contiguous() const {
  int64_t next = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[static_cast<size_t>(i)] != next) {
      return false;
    }
    next *= shape_[i];
  }
  return true;
}

void* Tensor::raw() const {
  HALFTONE_CHECK(defined(), "tensor: used before it was given any elements");
  return static_cast<std::byte*>(storage_->data()) +
         offset_ * static_cast<int64_t>(size_of(dtype_));
}

double Tensor::item() const {
  HALFTONE_CHECK(
      numel() == 1, "Tensor::item: the tensor has shape ", shape_, ", expected one element");
  return to_doubles()[0];
}

std::vector<double> Tensor::to_doubles() const {
  if (!is_cpu()) {
    return to_device(*this, Device{}).to_doubles();
  }
  std::vector<double> values(static_cast<size_t>(numel()));
  std::vector<int64_t> index(static_cast<size_t>(rank()), 0);
  dispatch_all(dtype_, "Tensor::to_doubles", [&]<class T>() {
    const T* base = static_cast<const T*>(raw());
    for (double& value : values) {
      int64_t at = 0;
      for (size_t i = 0; i < index.size(); ++i) {
        at += index[i] * strides_[i];
      }
      value = static_cast<double>(widen(base[at]));
      for (int i = rank() - 1; i >= 0 && ++index[static_cast<size_t>(i)] == shape_[i]; --i) {
        index[static_cast<size_t>(i)] = 0;
      }
    }
  });
  return values;
}

Tensor Tensor::view(const Shape& shape, std::vector<int64_t> strides, int64_t offset) const {
  HALFTONE_CHECK(static_cast<int>(strides.size()) == shape.rank(),
                 "view: ",
                 strides.size(),
                 " strides for shape ",
                 shape);
  Tensor t;
  t.storage_ = storage_;
  t.shape_ = shape;
  t.strides_ = std::move(strides);
  t.offset_ = offset_ + offset;
  t.dtype_ = dtype_;
  return t;
}

Tensor Tensor::view(const Shape& shape) const {
  HALFTONE_CHECK(is_contiguous(), "view: the tensor of shape ", shape_, " is not contiguous");
  HALFTONE_CHECK(shape.numel() == numel(),
                 "view: shape ",
                 shape_,
                 " has ",
                 numel(),
                 " elements, ",
                 shape,
                 " has ",
                 shape.numel());
  return view(shape, contiguous_strides(shape), 0);
}

Tensor Tensor::detach() const {
  Tensor t = *this;
  t.grad_ = nullptr;
  return t;
}

Tensor empty_like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }
Tensor empty_like(const Tensor& x, DType dtype) {
  return Tensor::empty(x.shape(), dtype, x.device());
}

void copy(const Tensor& from, const Tensor& to) {
  HALFTONE_CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(),
                 "copy: from ",
                 from.dtype(),
                 " ",
                 from.shape(),
                 " to ",
                 to.dtype(),
                 " ",
                 to.shape());
  HALFTONE_CHECK(from.is_contiguous() && to.is_contiguous(),
                 "copy: both tensors must be contiguous");
  if (from.is_cpu() && to.is_cpu()) {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    return;
  }
#ifdef HALFTONE_HAS_CUDA
  cuda::copy_bytes(
      to.raw(), to.device(), from.raw(), from.device(), static_cast<size_t>(from.bytes()));
#else
  throw_no_cuda("copy");
#endif
}

void fill_zero(const Tensor& x) {
  HALFTONE_CHECK(
      x.is_contiguous(), "fill_zero: the tensor of shape ", x.shape(), " is not contiguous");
  if (x.is_cpu()) {
    std::memset(x.raw(), 0, static_cast<size_t>(x.bytes()));
    return;
  }
#ifdef HALFTONE_HAS_CUDA
  cuda::zero_bytes(x.raw(), static_cast<size_t>(x.bytes()));
#else
  throw_no_cuda("fill_zero");
#endif
}

Tensor to_device(const Tensor& x, Device device) {
  if (x.device() == device) {
    return x;
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), device);
  copy(x, y);
  return y;
}

}  // namespace halftone
