#include "ops/cross_entropy/loss_row.cuh"

namespace halftone {
namespace {

constexpr int kFinishChunks = 4;  // side by side: a thread is a lane of one
constexpr int kFinishThreads = kFinishChunks * kRowLanes;
constexpr int kGradientThreads = 256;

// One block: token losses meet in the row tree, valid targets are counted.
__global__ void __launch_bounds__(kFinishThreads) cross_entropy_sum_kernel(int64_t tokens,
                                                                           const int32_t* targets,
                                                                           const float* losses,
                                                                           const float* weight,
                                                                           float* loss,
                                                                           float* sum,
                                                                           int32_t* count) {
  constexpr int kSteps = kRowChunk / kRowLanes;
  __shared__ float groups[kFinishChunks][kRowGroups];
  __shared__ int32_t valid;
  device::wait_for_inputs();
  const int own = static_cast<int>(threadIdx.x) / kRowLanes;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  if (threadIdx.x == 0) {
    valid = 0;
  }
  int32_t own_valid = 0;
  float total = 0.0f;  // thread 0's
  const int64_t num_chunks = (tokens + kRowChunk - 1) / kRowChunk;
  for (int64_t chunk = 0; chunk < num_chunks; chunk += kFinishChunks) {
    const int64_t first = (chunk + own) * kRowChunk + lane;
    float values[kSteps];
    int32_t target[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {  // all on their way before the first is used
      const int64_t token = first + step * kRowLanes;
      values[step] = token < tokens ? losses[token] : 0.0f;
      target[step] = token < tokens ? targets[token] : kIgnoreTarget;
    }
    float of_lane = 0.0f;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      of_lane += values[step];
      own_valid += target[step] != kIgnoreTarget;
    }
#pragma unroll
    for (int stride = kRowGroup / 2; stride > 0; stride /= 2) {
      of_lane += __shfl_xor_sync(device::kFullWarp, of_lane, stride);
    }
    if (lane % kRowGroup == 0) {
      groups[own][lane / kRowGroup] = of_lane;
    }
    __syncthreads();
    if (threadIdx.x < device::kWarpSize) {
      float of_chunk[kFinishChunks];
#pragma unroll
      for (int i = 0; i < kFinishChunks; ++i) {
        of_chunk[i] = groups[i][threadIdx.x];
      }
#pragma unroll
      for (int stride = kRowGroups / 2; stride > 0; stride /= 2) {
#pragma unroll
        for (int i = 0; i < kFinishChunks; ++i) {
          of_chunk[i] += __shfl_xor_sync(device::kFullWarp, of_chunk[i], stride);
        }
      }
#pragma unroll
      for (int i = 0; i < kFinishChunks; ++i) {
        total += of_chunk[i];  // +0 for chunks that are not there
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int stride = device::kWarpSize / 2; stride > 0; stride /= 2) {
    own_valid += __shfl_xor_sync(device::kFullWarp, own_valid, stride);
  }
  if (threadIdx.x % device::kWarpSize == 0) {
    atomicAdd(&valid, own_valid);  // integers: any order gives the same
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *count = valid;
    *sum = total;
    *loss = valid == 0          ? 0.0f
            : weight != nullptr ? total * *weight
                                : math::divide(total, static_cast<float>(valid));
  }
}

// dlogits[c] = (p[c] - [c is the target]) * dy * the token's weight, kPack neighbours at a time.
// kWidth threads of a block take a token: 32, or all.
template <int kWidth, bool accumulate, int kPack, class T, class S>
__global__ void __launch_bounds__(kGradientThreads)
    cross_entropy_bwd_kernel(int64_t tokens,
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
  device::wait_for_inputs();
  const float of_token =
      weight != nullptr ? *weight : math::divide(1.0f, static_cast<float>(*count > 1 ? *count : 1));
  const float scale = *dy * of_token;
  const int64_t token = int64_t{blockIdx.x} * (kGradientThreads / kWidth) + threadIdx.x / kWidth;
  if (kWidth < kGradientThreads && token >= tokens) {
    return;
  }
  const int32_t target = targets[token];
  const float shift = shifts[token];
  const float inverse_sum = inverse_sums[token];
  const int64_t counted = target == kIgnoreTarget ? 0 : vocab;
  const T* row = logits + token * columns;
  S* out = dlogits + token * columns;
  constexpr int kStride = kWidth * kPack;
#pragma unroll 2
  for (int64_t c = int64_t{threadIdx.x % kWidth} * kPack; c < columns; c += kStride) {
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
               {.blocks = 1, .threads = kFinishThreads, .early = true},
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
      const auto launch = [&](auto* kernel, int64_t width) {
        cuda::launch(kernel,
                     {.blocks = cuda::blocks_for(tokens, kGradientThreads / width),
                      .threads = kGradientThreads,
                      .early = true},
                     tokens,
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
      constexpr int64_t kShort = 512;  // columns: a warp is done with them in a few steps
      const bool packed =
          columns % kPack == 0 && device::is_aligned(logits) && device::is_aligned(out);
      const auto launch_width = [&]<int kWidth>() {
        packed ? launch(cross_entropy_bwd_kernel<kWidth, accumulate, kPack, T, S>, kWidth)
               : launch(cross_entropy_bwd_kernel<kWidth, accumulate, 1, T, S>, kWidth);
      };
      columns <= kShort ? launch_width.template operator()<device::kWarpSize>()
                        : launch_width.template operator()<kGradientThreads>();
    });
  });
}

}  // namespace halftone
