#include "ops/copy/strided_copy.h"

#include "ops/op.cuh"

namespace halftone {
namespace {

constexpr int kMaxAxes = 8;

// The axes of a copy, outermost first.
struct Axes {
  int rank = 0;
  int64_t extent[kMaxAxes];
  int64_t from_stride[kMaxAxes];
  int64_t to_stride[kMaxAxes];
};

Axes make_axes(const Shape& shape,
               const std::vector<int64_t>& from_strides,
               const std::vector<int64_t>& to_strides) {
  Axes axes;
  for (int k = 0; k < shape.rank(); ++k) {
    const auto i = static_cast<size_t>(k);
    if (shape[k] == 1) {
      continue;
    }
    const int outer = axes.rank - 1;
    if (outer >= 0 && axes.from_stride[outer] == from_strides[i] * shape[k] &&
        axes.to_stride[outer] == to_strides[i] * shape[k]) {  // both sides walk them as one
      axes.extent[outer] *= shape[k];
      axes.from_stride[outer] = from_strides[i];
      axes.to_stride[outer] = to_strides[i];
      continue;
    }
    HALFTONE_CHECK(axes.rank < kMaxAxes, "copy: shape ", shape, " has more than 8 axes");
    axes.extent[axes.rank] = shape[k];
    axes.from_stride[axes.rank] = from_strides[i];
    axes.to_stride[axes.rank] = to_strides[i];
    ++axes.rank;
  }
  return axes;
}

// How many elements of `size` bytes can move as one: up to 16 bytes that lie together on both
// sides, wherever a run starts.
int64_t elements_together(const Axes& axes, int64_t size, const void* from, const void* to) {
  const int last = axes.rank - 1;
  if (last < 0 || axes.from_stride[last] != 1 || axes.to_stride[last] != 1) {
    return 1;
  }
  const auto fits = [&](int64_t n) {
    bool ok = axes.extent[last] % n == 0 && reinterpret_cast<uintptr_t>(from) % (n * size) == 0 &&
              reinterpret_cast<uintptr_t>(to) % (n * size) == 0;
    for (int k = 0; k < last; ++k) {
      ok = ok && axes.from_stride[k] % n == 0 && axes.to_stride[k] % n == 0;
    }
    return ok;
  };
  int64_t n = device::kVectorBytes / size;
  while (!fits(n)) {
    n /= 2;
  }
  return n;
}

template <bool accumulate, class S, class D>
__global__ void strided_copy_kernel(Axes axes, int64_t n, const S* from, D* to) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    int64_t rest = i;
    int64_t a = 0;
    int64_t b = 0;
#pragma unroll 1
    for (int k = axes.rank - 1; k >= 0; --k) {
      const int64_t index = k == 0 ? rest : device::split(rest, axes.extent[k]);
      a += index * axes.from_stride[k];
      b += index * axes.to_stride[k];
    }
    if constexpr (std::is_same_v<S, D> && !accumulate) {
      to[b] = from[a];
    } else {
      put<accumulate>(to[b], widen(from[a]));
    }
  }
}

template <bool accumulate, class S, class D>
void launch_copy(const Axes& axes, int64_t n, const void* from, void* to) {
  constexpr int kThreads = 256;
  cuda::launch(strided_copy_kernel<accumulate, S, D>,
               {cuda::blocks_for(n, kThreads), kThreads},
               axes,
               n,
               static_cast<const S*>(from),
               static_cast<D*>(to));
}

// Same dtype on both sides: bytes move, whatever they mean.
void copy_bytes(Axes axes, int64_t n, size_t size, const void* from, void* to) {
  const int64_t together = elements_together(axes, static_cast<int64_t>(size), from, to);
  if (together > 1) {
    const int last = axes.rank - 1;
    axes.extent[last] /= together;
    for (int k = 0; k < last; ++k) {
      axes.from_stride[k] /= together;
      axes.to_stride[k] /= together;
    }
  }
  n /= together;
  switch (together * static_cast<int64_t>(size)) {
    case 1:
      return launch_copy<false, uint8_t, uint8_t>(axes, n, from, to);
    case 2:
      return launch_copy<false, uint16_t, uint16_t>(axes, n, from, to);
    case 4:
      return launch_copy<false, uint32_t, uint32_t>(axes, n, from, to);
    case 8:
      return launch_copy<false, uint2, uint2>(axes, n, from, to);
    case 16:
      return launch_copy<false, uint4, uint4>(axes, n, from, to);
    default:
      throw std::logic_error("copy: an element of another size");
  }
}

}  // namespace

void detail::strided_copy_cuda(const Shape& shape,
                               const Tensor& from,
                               const std::vector<int64_t>& from_strides,
                               const Tensor& to,
                               const std::vector<int64_t>& to_strides,
                               int64_t to_offset,
                               bool accumulate) {
  const Axes axes = make_axes(shape, from_strides, to_strides);
  const int64_t n = shape.numel();
  const size_t to_size = size_of(to.dtype());
  void* out = static_cast<char*>(to.raw()) + to_offset * static_cast<int64_t>(to_size);
  if (!accumulate && from.dtype() == to.dtype()) {
    copy_bytes(axes, n, to_size, from.raw(), out);
    return;
  }
  dispatch_gpu(from.dtype(), "copy", [&]<class S>() {
    dispatch_gpu(to.dtype(), "copy", [&]<class D>() {
      if (accumulate) {
        launch_copy<true, S, D>(axes, n, from.raw(), out);
      } else {
        launch_copy<false, S, D>(axes, n, from.raw(), out);
      }
    });
  });
}

}  // namespace halftone
