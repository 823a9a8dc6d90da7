#include "ops/cross_entropy/loss_row.cuh"

namespace halftone {
namespace {

constexpr int kFinishThreads = 1024;
constexpr int kGradientThreads = 256;

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
  device::wait_for_inputs();
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

// A block takes a token: dlogits[c] = (p[c] - [c is the target]) * dy * the token's weight, kPack
// neighbours at a time.
template <bool accumulate, int kPack, class T, class S>
__global__ void __launch_bounds__(kGradientThreads)
    cross_entropy_bwd_kernel(int64_t columns,
                             int64_t vocab,
                             const T* logits,
                             const int32_t* targets,
                             const float* shifts,
                             const float* inverse_sums,
                             const float* weight,
                             const int32_t* count,
                             const float* dy,
                             S* dlogits) {
  device::wait_for_inputs();
  const float of_token =
      weight != nullptr ? *weight : math::divide(1.0f, static_cast<float>(*count > 1 ? *count : 1));
  const float scale = *dy * of_token;
  const int64_t token = blockIdx.x;
  const int32_t target = targets[token];
  const float shift = shifts[token];
  const float inverse_sum = inverse_sums[token];
  const int64_t counted = target == kIgnoreTarget ? 0 : vocab;
  const T* row = logits + token * columns;
  S* out = dlogits + token * columns;
  constexpr int64_t kStride = int64_t{kGradientThreads} * kPack;
#pragma unroll 2
  for (int64_t c = int64_t{threadIdx.x} * kPack; c < columns; c += kStride) {
    float p[kPack];
    load_widened(row + c, p);
    float least = 0.0f;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      p[j] -= shift;
      least = fminf(least, p[j]);
    }
    if (least >= math::kExpNear && shift == shift) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        p[j] = math::exp_near(p[j]) * inverse_sum;
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        p[j] = math::exp(p[j]) * inverse_sum;
      }
    }
    if (target >= c && target < c + kPack) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        p[j] = c + j == target ? p[j] - 1.0f : p[j];
      }
    }
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      p[j] *= scale;
    }
    if (c + kPack > counted) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        p[j] = c + j < counted ? p[j] : 0.0f;
      }
    }
    put_pack<accumulate>(p, out + c);
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
    device::launch_losses(device::TokenLosses<T>{tokens,
                                                 columns,
                                                 call.vocab,
                                                 call.logits.data<T>(),
                                                 targets,
                                                 call.shift.data<float>(),
                                                 call.inverse_sum.data<float>(),
                                                 losses.data<float>()},
                          call.logits.device());
  });
  cuda::launch(cross_entropy_sum_kernel,
               {.blocks = 1,
                .threads = kFinishThreads,
                .shared_bytes = device::grid_of_rows(1, tokens).shared_bytes,
                .early = true},
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
      const T* logits = call.logits.data<T>();
      const auto launch = [&](auto* kernel) {
        cuda::launch(kernel,
                     {.blocks = tokens, .threads = kGradientThreads, .early = true},
                     columns,
                     call.vocab,
                     logits,
                     call.targets.data<int32_t>(),
                     call.shift.data<float>(),
                     call.inverse_sum.data<float>(),
                     weight_of(call),
                     count.data<int32_t>(),
                     dy.data<float>(),
                     out);
      };
      constexpr int kPack = pack_of(std::min(sizeof(T), sizeof(S)));
      const bool packed =
          columns % kPack == 0 && device::is_aligned(logits) && device::is_aligned(out);
      packed ? launch(cross_entropy_bwd_kernel<accumulate, kPack, T, S>)
             : launch(cross_entropy_bwd_kernel<accumulate, 1, T, S>);
    });
  });
}

}  // namespace halftone
