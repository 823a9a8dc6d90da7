#include "ops/cross_entropy/cross_entropy.h"

#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"
#include "ops/softmax/softmax_row.cuh"

namespace halftone {
namespace {

constexpr int kFinishThreads = 512;

__device__ bool is_valid(int32_t target, int64_t vocab) { return target >= 0 && target < vocab; }

// A block takes a token.
template <class T>
__global__ void cross_entropy_fwd_kernel(int64_t tokens,
                                         int64_t columns,
                                         int64_t vocab,
                                         const T* logits,
                                         const int32_t* targets,
                                         float* shift,
                                         float* inverse_sum,
                                         float* loss) {
  extern __shared__ float chunk_sums[];
  __shared__ float warp_maxima[device::kMaxRowWarps];
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const int32_t target = targets[token];
    if (!is_valid(target, vocab)) {  // the whole block
      if (threadIdx.x == 0) {
        const bool ignored = target == kIgnoreTarget;
        loss[token] = ignored ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        shift[token] = 0.0f;
        inverse_sum[token] = loss[token];
      }
      continue;
    }
    const T* row = logits + token * columns;
    const auto s = device::softmax_row(
        vocab, [row](int64_t c) { return widen(row[c]); }, chunk_sums, warp_maxima);
    if (threadIdx.x == 0) {
      shift[token] = softmax_shift(s.max);
      inverse_sum[token] = s.inverse_sum;
      loss[token] = math::log(s.sum) - (widen(row[target]) - softmax_shift(s.max));
    }
    __syncthreads();
  }
}

// One block: token losses meet in the row tree, valid targets are counted.
__global__ void cross_entropy_sum_kernel(int64_t tokens,
                                         const int32_t* targets,
                                         const float* losses,
                                         const float* weight,
                                         float* loss,
                                         float* sum,
                                         int32_t* count) {
  extern __shared__ float chunk_sums[];
  __shared__ int32_t valid;
  if (threadIdx.x == 0) {
    valid = 0;
  }
  __syncthreads();
  int32_t own = 0;
  for (int64_t token = threadIdx.x; token < tokens; token += blockDim.x) {
    own += targets[token] != kIgnoreTarget;
  }
  atomicAdd(&valid, own);  // integers: any order gives the same
  const float total = device::block_row_sum<float>(
      tokens, [losses](int64_t token) { return losses[token]; }, chunk_sums);
  if (threadIdx.x == 0) {
    *count = valid;
    *sum = total;
    *loss = valid == 0          ? 0.0f
            : weight != nullptr ? total * *weight
                                : math::divide(total, static_cast<float>(valid));
  }
}

// A block takes a token: dlogits[c] = (p[c] - [c is the target]) * dy * the token's weight.
template <bool accumulate, class T, class S>
__global__ void cross_entropy_bwd_kernel(int64_t tokens,
                                         int64_t columns,
                                         int64_t vocab,
                                         const T* logits,
                                         const int32_t* targets,
                                         const float* shifts,
                                         const float* inverse_sums,
                                         const float* weight,
                                         const int32_t* count,
                                         const float* dy,
                                         S* dlogits) {
  const float of_token =
      weight != nullptr ? *weight : math::divide(1.0f, static_cast<float>(*count > 1 ? *count : 1));
  const float scale = *dy * of_token;
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const int32_t target = targets[token];
    const float shift = shifts[token];
    const float inverse_sum = inverse_sums[token];
    const int64_t counted = target == kIgnoreTarget ? 0 : vocab;
    const T* row = logits + token * columns;
    S* out = dlogits + token * columns;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      float gradient = 0.0f;
      if (c < counted) {
        const float p = math::exp(widen(row[c]) - shift) * inverse_sum;
        gradient = (c == target ? p - 1.0f : p) * scale;
      }
      put<accumulate>(out[c], gradient);
    }
  }
}

const float* weight_of(const detail::CrossEntropyCall& call) {
  return call.weight.defined() ? call.weight.data<float>() : nullptr;
}

}  // namespace

void detail::cross_entropy_cuda(const CrossEntropyCall& call, const CrossEntropy& result) {
  const int64_t tokens = call.targets.numel();
  const int64_t columns = call.logits.size(-1);
  const int32_t* targets = call.targets.data<int32_t>();
  const Tensor losses =
      Tensor::empty({tokens}, DType::f32, call.logits.device(), MemoryCategory::workspace);
  dispatch_gpu(call.logits.dtype(), "cross_entropy", [&]<class T>() {
    cuda::launch(cross_entropy_fwd_kernel<T>,
                 device::grid_of_rows(tokens, columns),
                 tokens,
                 columns,
                 call.vocab,
                 call.logits.data<T>(),
                 targets,
                 call.shift.data<float>(),
                 call.inverse_sum.data<float>(),
                 losses.data<float>());
  });
  cuda::launch(cross_entropy_sum_kernel,
               {1, kFinishThreads, device::grid_of_rows(1, tokens).shared_bytes},
               tokens,
               targets,
               losses.data<float>(),
               weight_of(call),
               result.loss.data<float>(),
               result.sum.data<float>(),
               result.count.data<int32_t>());
}

void detail::cross_entropy_backward_cuda(const CrossEntropyCall& call,
                                         const Tensor& count,
                                         const Tensor& dy,
                                         const GradSink& dlogits) {
  const int64_t tokens = call.targets.numel();
  const int64_t columns = call.logits.size(-1);
  dispatch_gpu(call.logits.dtype(), "cross_entropy", [&]<class T>() {
    with_sink<T>(dlogits, [&]<bool accumulate, class S>(S* out) {
      cuda::launch(cross_entropy_bwd_kernel<accumulate, T, S>,
                   device::grid_of_rows(tokens, columns),
                   tokens,
                   columns,
                   call.vocab,
                   call.logits.data<T>(),
                   call.targets.data<int32_t>(),
                   call.shift.data<float>(),
                   call.inverse_sum.data<float>(),
                   weight_of(call),
                   count.data<int32_t>(),
                   dy.data<float>(),
                   out);
    });
  });
}

}  // namespace halftone
