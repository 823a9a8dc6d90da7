#include "ops/layernorm/norm.h"

#include "ops/cast/cast.h"
#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

// A block takes a row. With a residual, x is first written as residual + branch.
template <class T, class Y>
__global__ void norm_fwd_kernel(int64_t rows,
                                int64_t columns,
                                bool centered,
                                float eps,
                                AnyElements gamma,
                                AnyElements beta,
                                AnyElements branch,
                                const T* residual,
                                T* x,
                                float* means,
                                float* rstds,
                                Y* y) {
  extern __shared__ float chunk_sums[];
  const auto n = static_cast<float>(columns);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* a = x + row * columns;
    Y* out = y + row * columns;
    if (residual != nullptr) {
      for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        const int64_t at = row * columns + i;
        a[i] = narrow<T>(widen(residual[at]) + branch[at]);  // rounded: what a reader of x sees
      }
      __syncthreads();  // other threads of the block read what was written
    }
    const float shift = widen(a[0]);
    float mean = 0.0f;
    float squares = 0.0f;
    if (centered) {
      const float sum = device::block_row_sum<float>(
          columns, [=](int64_t i) { return widen(a[i]) - shift; }, chunk_sums);
      mean = math::divide(sum, n);
      __syncthreads();
      squares = device::block_row_sum<float>(
          columns,
          [=](int64_t i) {
            const float c = (widen(a[i]) - shift) - mean;
            return c * c;
          },
          chunk_sums);
    } else {
      squares = device::block_row_sum<float>(
          columns, [=](int64_t i) { return widen(a[i]) * widen(a[i]); }, chunk_sums);
    }
    const float rstd = math::rsqrt(math::divide(squares, n) + eps);
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      const float v = widen(a[i]);
      const float xhat = (centered ? (v - shift) - mean : v) * rstd;
      out[i] = narrow<Y>(math::fma(xhat, gamma[i], beta.data == nullptr ? 0.0f : beta[i]));
    }
    if (threadIdx.x == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
    __syncthreads();
  }
}

// xhat of an element.
template <class T>
struct Standardized {
  const T* x;
  const float* means;
  const float* rstds;
  int64_t columns;
  bool centered;

  __device__ float operator()(int64_t row, int64_t i) const {
    const T* a = x + row * columns;
    const float v = widen(a[i]);
    return (centered ? (v - widen(a[0])) - means[row] : v) * rstds[row];
  }
};

// A block takes a row: dx = rstd * ((dy * gamma - mean(dy * gamma)) - xhat * mean(dy * xhat *
// gamma)).
template <bool accumulate, class T, class S>
__global__ void norm_bwd_kernel(
    int64_t rows, Standardized<T> xhat, AnyElements gamma, AnyElements dy, S* dx) {
  extern __shared__ float chunk_sums[];
  const int64_t columns = xhat.columns;
  const auto n = static_cast<float>(columns);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row * columns;
    const float along_sum = device::block_row_sum<float>(
        columns, [&](int64_t i) { return (dy[first + i] * xhat(row, i)) * gamma[i]; }, chunk_sums);
    const float along = math::divide(along_sum, n);
    __syncthreads();
    float mean = 0.0f;
    if (xhat.centered) {
      const float sum = device::block_row_sum<float>(
          columns, [&](int64_t i) { return dy[first + i] * gamma[i]; }, chunk_sums);
      mean = math::divide(sum, n);
    }
    const float rstd = xhat.rstds[row];
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      put<accumulate>(dx[first + i],
                      rstd * ((dy[first + i] * gamma[i] - mean) - xhat(row, i) * along));
    }
    __syncthreads();
  }
}

// What dgamma and dbeta are the column sums of.
template <class T>
struct GammaTerm {
  Standardized<T> xhat;
  AnyElements dy;
  __device__ float operator()(int64_t row, int64_t i) const {
    return dy[row * xhat.columns + i] * xhat(row, i);
  }
};
struct BetaTerm {
  AnyElements dy;
  int64_t columns;
  __device__ float operator()(int64_t row, int64_t i) const { return dy[row * columns + i]; }
};

template <class Term>
void write_column_sums(int64_t rows, int64_t columns, const Term& term, const GradSink& sink) {
  if (!sink) {
    return;
  }
  const Device device = sink.buffer.device();
  const Tensor sums = Tensor::empty({columns}, DType::f32, device, MemoryCategory::workspace);
  device::column_sums(rows, columns, term, 1.0f, sums.data<float>(), device);
  convert_gradient(sums, sink);
}

}  // namespace

void detail::normalize_cuda(const Norm& norm,
                            const Tensor& x,
                            const Tensor& residual,
                            const Tensor& branch,
                            const NormStatistics& statistics,
                            const Tensor& y) {
  const int64_t rows = num_rows(x);
  const int64_t columns = x.size(-1);
  const auto optional = [&](const Tensor& t) {
    return t.defined() ? any_elements(norm.op, t) : AnyElements();
  };
  dispatch_gpu(x.dtype(), norm.op, [&]<class T>() {
    dispatch_gpu(y.dtype(), norm.op, [&]<class Y>() {
      const T* from = residual.defined() ? residual.data<T>() : nullptr;
      cuda::launch(norm_fwd_kernel<T, Y>,
                   device::grid_of_rows(rows, columns),
                   rows,
                   columns,
                   norm.centered,
                   norm.eps,
                   any_elements(norm.op, norm.gamma),
                   optional(norm.beta),
                   optional(branch),
                   from,
                   x.data<T>(),
                   statistics.mean.data<float>(),
                   statistics.rstd.data<float>(),
                   y.data<Y>());
    });
  });
}

void detail::normalize_backward_cuda(const Norm& norm,
                                     const Tensor& x,
                                     const NormStatistics& statistics,
                                     const Tensor& dy,
                                     const GradSink& dx,
                                     const GradSink& dgamma,
                                     const GradSink& dbeta) {
  const int64_t rows = num_rows(x);
  const int64_t columns = x.size(-1);
  const AnyElements g = any_elements(norm.op, dy);
  dispatch_gpu(x.dtype(), norm.op, [&]<class T>() {
    const Standardized<T> xhat{x.data<T>(),
                               statistics.mean.data<float>(),
                               statistics.rstd.data<float>(),
                               columns,
                               norm.centered};
    if (dx) {
      with_sink<T>(dx, [&]<bool accumulate, class S>(S* out) {
        cuda::launch(norm_bwd_kernel<accumulate, T, S>,
                     device::grid_of_rows(rows, columns),
                     rows,
                     xhat,
                     any_elements(norm.op, norm.gamma),
                     g,
                     out);
      });
    }
    write_column_sums(rows, columns, GammaTerm<T>{xhat, g}, dgamma);
  });
  write_column_sums(rows, columns, BetaTerm{g, columns}, dbeta);
}

}  // namespace halftone
