#include "core/cuda/check.cuh"
#include "ops/op.h"
#include "ops/squared_relu/squared_relu.h"

namespace halftone {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }
cudaStream_t stream() { return static_cast<cudaStream_t>(cuda::current_stream()); }

template <class T>
__global__ void squared_relu_fwd_kernel(const T* x, T* y, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) {
    y[i] = narrow<T>(squared_relu(widen(x[i])));
  }
}

template <bool accumulate, class T, class S>
__global__ void squared_relu_bwd_kernel(const T* x, const T* dy, S* dx, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) {
    put<accumulate>(dx[i], widen(dy[i]) * squared_relu_grad(widen(x[i])));
  }
}

}  // namespace

void detail::squared_relu_cuda(const Tensor& x, const Tensor& y) {
  const int64_t n = x.numel();
  if (n == 0) {
    return;
  }
  dispatch_floating(x.dtype(), "squared_relu", [&]<class T>() {
    squared_relu_fwd_kernel<<<blocks_for(n), kThreads, 0, stream()>>>(x.data<T>(), y.data<T>(), n);
  });
  HALFTONE_CUDA_CHECK_LAUNCH();
}

void detail::squared_relu_backward_cuda(const Tensor& x, const Tensor& dy, const GradSink& dx) {
  const int64_t n = x.numel();
  if (!dx || n == 0) {
    return;
  }
  dispatch_floating(x.dtype(), "squared_relu", [&]<class T>() {
    with_sink<T>(dx, [&]<bool accumulate>(auto* out) {
      squared_relu_bwd_kernel<accumulate>
          <<<blocks_for(n), kThreads, 0, stream()>>>(x.data<T>(), dy.data<T>(), out, n);
    });
  });
  HALFTONE_CUDA_CHECK_LAUNCH();
}

}  // namespace halftone
