#include "ops/gather_images/gather_images.h"

#include "ops/op.cuh"

namespace halftone {
namespace {

template <class T>
struct GatherElements {
  const uint8_t* pixels;
  const int32_t* labels;
  detail::RowFinder find_rows;
  const T* values;
  int64_t columns;
  T* x;
  int32_t* targets;

  template <int N>
  __device__ void operator()(int64_t i) const {
    const int32_t* rows = find_rows();
    int64_t b = i;
    int64_t column = device::split(b, columns);
    T out[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      out[j] = values[pixels[rows[b] * columns + column]];
      if (column == 0) {
        targets[b] = labels[rows[b]];
      }
      if (++column == columns) {
        column = 0;
        ++b;
      }
    }
    device::store(out, x + i);
  }
};

}  // namespace

void detail::gather_images_cuda(const Tensor& pixels,
                                const Tensor& labels,
                                const RowFinder& rows,
                                const Tensor& values,
                                const ImageBatch& batch) {
  dispatch_gpu(values.dtype(), "gather_images", [&]<class T>() {
    T* x = batch.x.data<T>();
    launch_elements<pack_of(sizeof(T))>(batch.x.numel(),
                                        GatherElements<T>{pixels.data<uint8_t>(),
                                                          labels.data<int32_t>(),
                                                          rows,
                                                          values.data<T>(),
                                                          pixels.size(1),
                                                          x,
                                                          batch.targets.data<int32_t>()},
                                        {x});
  });
}

}  // namespace halftone
