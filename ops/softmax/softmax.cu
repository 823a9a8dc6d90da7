#include "ops/softmax/softmax.h"

#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"
#include "ops/softmax/softmax_row.cuh"

namespace halftone {
namespace {

template <class T>
__global__ void softmax_fwd_kernel(int64_t rows, int64_t columns, const T* x, T* y) {
  extern __shared__ float chunk_sums[];
  __shared__ float warp_maxima[device::kMaxRowWarps];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* a = x + row * columns;
    T* b = y + row * columns;
    const auto s = device::softmax_row(
        columns, [a](int64_t i) { return widen(a[i]); }, chunk_sums, warp_maxima);
    const float shift = softmax_shift(s.max);
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      b[i] = narrow<T>(softmax_exp(widen(a[i]) - shift) * s.inverse_sum);
    }
    __syncthreads();
  }
}

template <bool accumulate, class T, class S>
__global__ void softmax_bwd_kernel(int64_t rows, int64_t columns, const T* y, const T* dy, S* dx) {
  extern __shared__ float chunk_sums[];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* a = y + row * columns;
    const T* b = dy + row * columns;
    S* c = dx + row * columns;
    const float dot = device::block_row_sum<float>(
        columns, [=](int64_t i) { return widen(a[i]) * widen(b[i]); }, chunk_sums);
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      put<accumulate>(c[i], widen(a[i]) * (widen(b[i]) - dot));
    }
    __syncthreads();
  }
}

}  // namespace

void detail::softmax_cuda(const Tensor& x, const Tensor& y) {
  const int64_t rows = num_rows(x);
  const int64_t columns = x.size(-1);
  dispatch_gpu(x.dtype(), "softmax", [&]<class T>() {
    cuda::launch(softmax_fwd_kernel<T>,
                 device::grid_of_rows(rows, columns),
                 rows,
                 columns,
                 x.data<T>(),
                 y.data<T>());
  });
}

void detail::softmax_backward_cuda(const Tensor& y, const Tensor& dy, const GradSink& dx) {
  const int64_t rows = num_rows(y);
  const int64_t columns = y.size(-1);
  dispatch_gpu(y.dtype(), "softmax", [&]<class T>() {
    with_sink<T>(dx, [&]<bool accumulate, class S>(S* out) {
      cuda::launch(softmax_bwd_kernel<accumulate, T, S>,
                   device::grid_of_rows(rows, columns),
                   rows,
                   columns,
                   y.data<T>(),
                   dy.data<T>(),
                   out);
    });
  });
}

}  // namespace halftone
