// The optimizer's pass over the flat buffers on a GPU. The decision to apply the step, the factors
// and the schedule's row are read where the kernel runs: nothing that changes from step to step is
// an argument.
#pragma once

#include "core/cuda/last_block.cuh"
#include "ops/op.cuh"
#include "ops/weight_update/weight_update.h"

namespace halftone::detail {

template <class T, class C>
struct UpdateBuffers {
  int64_t n;
  const float* gradients;
  T* weights;
  C* copies;  // null: none
  const uint8_t* decays;
  PhiloxKey key;
  bool stochastic;
};

/// Weights that a thread takes at a time: whole blocks of draws, 16 bytes of a 16-bit type, and
/// always in one block of 64.
inline constexpr int kUpdatePack = 8;

template <class Rule, class T, class C>
__device__ void update_weights_of_thread(const UpdateBuffers<T, C>& buffers,
                                         const std::array<float*, Rule::kMoments>& moments,
                                         const ScheduleTable& schedule,
                                         const Rule& rule,
                                         const StepScalars& now,
                                         StepScalars* scalars) {
  constexpr int kPack = kUpdatePack;
  const float unscale = now.unscale;
  const float clip = now.clip_factor;
  const ScheduleRow row = schedule.row(now.update);
  const RandomStream stream{buffers.key, static_cast<uint32_t>(now.iteration)};
  const int64_t stride = int64_t{gridDim.x} * blockDim.x * kPack;
  unsigned long long lost = 0;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPack; i < buffers.n;
       i += stride) {
    float u[kPack];
    T stored[kPack];
    float w[kPack];
    float own[Rule::kMoments][kPack];
    device::load(buffers.gradients + i, u);
    device::load(buffers.weights + i, stored);
#pragma unroll
    for (int k = 0; k < static_cast<int>(Rule::kMoments); ++k) {
      device::load(moments[k] + i, own[k]);
    }
    const bool decays = buffers.decays[i / kParameterAlignment] != 0;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      float of_weight[Rule::kMoments];
#pragma unroll
      for (int k = 0; k < static_cast<int>(Rule::kMoments); ++k) {
        of_weight[k] = own[k][j];
      }
      w[j] = widen(stored[j]);
      rule(row, u[j] * unscale * clip, decays, w[j], of_weight);
#pragma unroll
      for (int k = 0; k < static_cast<int>(Rule::kMoments); ++k) {
        own[k][j] = of_weight[k];
      }
    }
#pragma unroll
    for (int k = 0; k < static_cast<int>(Rule::kMoments); ++k) {
      device::store(own[k], moments[k] + i);
    }
    PhiloxBlock draws{};
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      T next = narrow<T>(w[j]);
      if constexpr (sizeof(T) == 2) {
        if (buffers.stochastic) {
          if (j % 4 == 0) {
            draws = stream.block(static_cast<uint64_t>(i + j) / 4);
          }
          constexpr Format kFormat = std::is_same_v<T, BFloat16> ? kBf16 : kFp16;
          next.bits = static_cast<uint16_t>(
              encode(kFormat, w[j], Rounding::stochastic, Overflow::standard, draws.word[j % 4]));
        }
        lost += next.bits == stored[j].bits && w[j] != widen(stored[j]) ? 1 : 0;
      }
      stored[j] = next;
    }
    device::store(stored, buffers.weights + i);
    if (buffers.copies != nullptr) {
      C rounded[kPack];
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        rounded[j] = narrow<C>(w[j]);
      }
      device::store(rounded, buffers.copies + i);
    }
  }
  if (sizeof(T) == 2 && lost > 0) {  // integers: any order gives the same
    atomicAdd(reinterpret_cast<unsigned long long*>(&scalars->lost_updates), lost);
  }
}

/// Has the weights and moments that this thread will read first brought to L2, whatever they are by
/// then: the gradients are still being looked at.
template <class Rule, class T, class C>
__device__ void prefetch_of_thread(const UpdateBuffers<T, C>& buffers,
                                   const std::array<float*, Rule::kMoments>& moments) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kUpdatePack;
  const auto prefetch = [](const void* line) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
  };
  if (i < buffers.n) {
    prefetch(buffers.weights + i);
#pragma unroll
    for (int k = 0; k < static_cast<int>(Rule::kMoments); ++k) {
      prefetch(moments[k] + i);
    }
  }
}

/// The last block ends the step.
template <class Rule, class T, class C>
__global__ void update_weights_kernel(UpdateBuffers<T, C> buffers,
                                      std::array<float*, Rule::kMoments> moments,
                                      ScheduleTable schedule,
                                      Rule rule,
                                      EndStep end,
                                      StepRules rules,
                                      StepScalars* scalars) {
  prefetch_of_thread<Rule>(buffers, moments);
  device::wait_for_inputs();
  const StepScalars now = *scalars;  // all at once
  if (now.apply != 0) {
    update_weights_of_thread(buffers, moments, schedule, rule, now, scalars);
  }
  if (device::is_last_block(&scalars->arrived) && threadIdx.x == 0) {
    end(rules, *scalars);
  }
}

template <class Rule>
void update_weights_cuda(const ParameterBuffers& buffers,
                         const std::array<float*, Rule::kMoments>& moments,
                         const ScheduleTable& schedule,
                         const Rule& rule,
                         StepState& state) {
  const int64_t n = buffers.gradients.numel();
  with_weights(buffers, [&]<class T, class C>(T* weights, C* copies) {
    const UpdateBuffers<T, C> given{n,
                                    buffers.gradients.data<float>(),
                                    weights,
                                    copies,
                                    buffers.decays.data<uint8_t>(),
                                    philox_key(buffers.random.seed, kWeightUpdatePurpose),
                                    buffers.rounding == Rounding::stochastic};
    constexpr int kThreads = 256;
    constexpr int64_t kBlocks = 2048;  // enough to fill a device; more would read the scalars anew
    cuda::launch(
        update_weights_kernel<Rule, T, C>,
        {.blocks = std::clamp<int64_t>(cuda::blocks_for(n, kThreads * kUpdatePack), 1, kBlocks),
         .threads = kThreads,
         .early = true},
        given,
        moments,
        schedule,
        rule,
        end_of_step(state),
        state.rules(),
        &state.scalars());
  });
}

}  // namespace halftone::detail
