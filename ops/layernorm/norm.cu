// Rows of up to 2048 elements stay in a warp's registers (norm_rows.cuh). Longer ones, here, are
// read by a block several times, from a cache after the first.
#include "ops/layernorm/norm_rows_backward.cuh"

namespace halftone {
namespace {

// A block takes a row. With a residual, x is first written as residual + branch.
template <class T, class Y>
__global__ void norm_long_fwd_kernel(int64_t rows,
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
__global__ void norm_long_bwd_kernel(
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

// What norm_lanes_kernel adds up.
template <class T>
struct NormTerm {
  Standardized<T> xhat;
  AnyElements dy;
  __device__ float operator()(int64_t row, int64_t i, float& g) const {
    g = dy[row * xhat.columns + i];
    return g * xhat(row, i);
  }
};

void forward_long(const Norm& norm,
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
      cuda::launch(norm_long_fwd_kernel<T, Y>,
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

// Calls body with the steps of 256 that hold a row, as a constant; false if no warp can.
template <class Body>
bool with_steps(int64_t columns, const Body& body) {
  const int64_t steps = (columns + kRowLanes - 1) / kRowLanes;
  switch (steps) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 3:
      return body.template operator()<3>();
    case 4:
      return body.template operator()<4>();
    default:
      return steps <= 8 && body.template operator()<8>();
  }
}

bool aligned(std::initializer_list<Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) {
    return !t.defined() || (t.size(-1) % kRowGroup == 0 &&
                            reinterpret_cast<uintptr_t>(t.raw()) % device::kVectorBytes == 0);
  });
}

device::AnyRows any_rows(std::string_view op, const Tensor& t) {
  if (!t.defined()) {
    return {};
  }
  any_elements(op, t);  // throws for what no kernel takes
  return {t.raw(), t.dtype()};
}

device::NormRows norm_rows(const Norm& norm, const Tensor& x, const NormStatistics& statistics) {
  return {num_rows(x),
          static_cast<int>(x.size(-1)),
          norm.centered,
          norm.eps,
          any_rows(norm.op, x),
          any_rows(norm.op, norm.gamma),
          any_rows(norm.op, norm.beta),
          statistics.mean.data<float>(),
          statistics.rstd.data<float>()};
}

struct ParameterSinks {
  const GradSink& dgamma;
  const GradSink& dbeta;

  explicit operator bool() const { return dgamma || dbeta; }
};

// Calls launch(partials) for what fills the sums of all blocks, null where nobody wants them, then
// adds these up.
template <class Launch>
void with_partials(const Norm& norm,
                   int64_t rows,
                   int64_t columns,
                   const ParameterSinks& to,
                   const Launch& launch) {
  if (!to) {
    return launch(static_cast<float*>(nullptr));
  }
  const int64_t parts = device::norm_parts(rows);
  const Tensor partials = Tensor::empty(
      {parts, 2, columns}, DType::f32, norm.gamma.device(), MemoryCategory::workspace);
  launch(partials.data<float>());
  cuda::launch(device::norm_parts_kernel,
               {.blocks = 2 * cuda::blocks_for(columns, device::kWarpSize),
                .threads = device::kNormThreads,
                .early = true},
               static_cast<int>(parts),
               columns,
               partials.data<float>(),
               any_rows(norm.op, to.dgamma.buffer),
               to.dgamma.accumulate,
               any_rows(norm.op, to.dbeta.buffer),
               to.dbeta.accumulate);
}

void backward_long(const Norm& norm,
                   const Tensor& x,
                   const NormStatistics& statistics,
                   const Tensor& dy,
                   const GradSink& dx,
                   const ParameterSinks& to) {
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
        cuda::launch(norm_long_bwd_kernel<accumulate, T, S>,
                     device::grid_of_rows(rows, columns),
                     rows,
                     xhat,
                     any_elements(norm.op, norm.gamma),
                     g,
                     out);
      });
    }
    with_partials(norm, rows, columns, to, [&](float* partials) {
      if (partials != nullptr) {
        const int64_t parts = device::norm_parts(rows);
        cuda::launch(
            device::norm_lanes_kernel<NormTerm<T>>,
            {parts * ((columns + device::kWarpSize - 1) / device::kWarpSize), device::kNormThreads},
            rows,
            columns,
            parts,
            NormTerm<T>{xhat, g},
            partials);
      }
    });
  });
}

// False where rows are too long for a warp, or for shared memory.
bool backward_rows(const Norm& norm,
                   const device::NormRows& rows,
                   const Tensor& dy,
                   const GradSink& dx,
                   const ParameterSinks& to) {
  return with_steps(dy.size(-1), [&]<int kSteps>() {
    auto* const kernel = device::norm_rows_bwd_kernel<kSteps>;
    constexpr size_t kFixedBytes = sizeof(float) * device::kNormFixedFloats<kSteps>;
    constexpr size_t kMeetingBytes = sizeof(float) * device::kNormMeetingFloats<kSteps>;
    constexpr size_t kStageBytes =
        2 * device::kNormWarps * device::kVectorBytes * device::WarpRow<kSteps>::kPacks;
    size_t bytes = kFixedBytes + std::max(kMeetingBytes, kStageBytes);
    const bool fetches = size_of(rows.x.dtype) == 2 && size_of(dy.dtype()) == 2 &&
                         allow_shared_bytes(kernel, bytes, dy.device());
    if (!fetches) {
      bytes = kFixedBytes + kMeetingBytes;
      if (!allow_shared_bytes(kernel, bytes, dy.device())) {
        return false;
      }
    }
    with_partials(norm, rows.rows, rows.columns, to, [&](float* partials) {
      cuda::launch(kernel,
                   {.blocks = device::norm_parts(rows.rows),
                    .threads = device::kNormThreads,
                    .shared_bytes = bytes,
                    .early = true},
                   rows,
                   any_rows(norm.op, dy),
                   any_rows(norm.op, dx.buffer),
                   dx.accumulate,
                   fetches,
                   partials);
    });
    return true;
  });
}

}  // namespace

void detail::normalize_cuda(const Norm& norm,
                            const Tensor& x,
                            const Tensor& residual,
                            const Tensor& branch,
                            const NormStatistics& statistics,
                            const Tensor& y) {
  const int64_t rows = num_rows(x);
  const bool by_warps = aligned({x, residual, branch, y});
  const bool done =
      by_warps && with_steps(x.size(-1), [&]<int kSteps>() {
        const device::NormRows call = norm_rows(norm, x, statistics);
        const device::AnyRows from = residual.defined() ? any_rows(norm.op, residual) : call.x;
        const device::AnyRows b = any_rows(norm.op, branch);
        constexpr size_t kParameterBytes = 2 * sizeof(float) * kSteps * kRowLanes;
        constexpr size_t kRowBytes = device::kVectorBytes * device::WarpRow<kSteps>::kPacks;
        const size_t stage_bytes = device::kNormWarps * kRowBytes * (residual.defined() ? 2 : 1);
        const auto launch = [&](auto* kernel, int64_t most_blocks, size_t bytes) {
          cuda::launch(kernel,
                       {.blocks = std::min(most_blocks, cuda::blocks_for(rows, device::kNormWarps)),
                        .threads = device::kNormThreads,
                        .shared_bytes = bytes,
                        .early = true},
                       call,
                       from,
                       b,
                       any_rows(norm.op, y));
        };
        // Fetching pays for elements of 16 bits. More blocks would read gamma and beta anew.
        if constexpr (kSteps <= 4) {
          auto* const fetching = device::norm_rows_fwd_kernel<kSteps, true>;
          const size_t bytes = kParameterBytes + stage_bytes;
          if (size_of(x.dtype()) == 2 && (!branch.defined() || size_of(branch.dtype()) == 2) &&
              allow_shared_bytes(fetching, bytes, x.device())) {
            launch(fetching, 1024, bytes);
            return true;
          }
        }
        launch(device::norm_rows_fwd_kernel<kSteps, false>, 2048, kParameterBytes);
        return true;
      });
  if (!done) {
    forward_long(norm, x, residual, branch, statistics, y);
  }
}

void detail::normalize_backward_cuda(const Norm& norm,
                                     const Tensor& x,
                                     const NormStatistics& statistics,
                                     const Tensor& dy,
                                     const GradSink& dx,
                                     const GradSink& dgamma,
                                     const GradSink& dbeta) {
  const ParameterSinks to{dgamma, dbeta};
  if (!aligned({x, dy, dx.buffer}) ||
      !backward_rows(norm, norm_rows(norm, x, statistics), dy, dx, to)) {
    backward_long(norm, x, statistics, dy, dx, to);
  }
}

}  // namespace halftone
