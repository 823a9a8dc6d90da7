// What every optimizer step shares: the flat buffers of a model's parameters, the unscaled and
// clipped gradient, and how a new weight is stored: in FP32, with a 16-bit copy refreshed in the
// same pass, or in 16 bits alone, rounded to nearest or stochastically. The optimizers' arithmetic
// is in ops/adamw_step and ops/sgd_step.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/convert.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "ops/step_state/step_state.h"

namespace halftone {

/// Parameters start at multiples of this many elements in the flat buffers.
inline constexpr int64_t kParameterAlignment = 64;

/// Equal offsets in every buffer; n is a multiple of kParameterAlignment; the gaps between
/// parameters are zero in all of them and stay zero.
struct ParameterBuffers {
  Tensor gradients;  // f32 [n]
  Tensor weights;    // f32 [n]; bf16 or f16 [n] where 16 bits are all there is
  Tensor copies;     // bf16 or f16 [n], `weights` rounded to nearest; undefined without
  Tensor decays;     // u8 [n / 64]: 1 where weight decay applies
  Rounding rounding = Rounding::nearest;  // of 16-bit `weights`; stochastic draws from `random`
  RandomSource random;
};

/// Throws std::invalid_argument where sizes or dtypes are not those above.
void check_buffers(std::string_view op, const ParameterBuffers& buffers);

/// One row of the schedule's table: f32 [updates, 3], made on the host in double.
struct ScheduleRow {
  float lr;
  float c1;  // 1 / (1 - beta1^t), t counting updates from 1
  float c2;  // 1 / sqrt(1 - beta2^t)
};

/// The row of an update, the last row beyond the end. Throws std::invalid_argument unless the table
/// is f32 [rows >= 1, 3] on the CPU.
ScheduleRow schedule_row(std::string_view op, const Tensor& schedule, int64_t update);

namespace detail {

template <class T>
void load_weights(const T* weights, float (&w)[kParameterAlignment]) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(weights, kParameterAlignment, w);
  } else {
    convert(weights, kParameterAlignment, w);
  }
}

/// Stores 64 new weights; `lost` counts those that an update reached and rounding put back.
template <class T>
void store_weights(const float (&w)[kParameterAlignment],
                   T* out,
                   Rounding rounding,
                   const RandomStream& stream,
                   int64_t first,
                   int64_t& lost) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(w, kParameterAlignment, out);
  } else {
    uint32_t draws[kParameterAlignment] = {};
    if (rounding == Rounding::stochastic) {
      fill_draws(stream, static_cast<uint64_t>(first), kParameterAlignment, draws);
    }
    constexpr Format kFormat = std::is_same_v<T, BFloat16> ? kBf16 : kFp16;
    for (int64_t j = 0; j < kParameterAlignment; ++j) {
      const uint32_t code =
          rounding == Rounding::stochastic
              ? encode(kFormat, w[j], Rounding::stochastic, Overflow::standard, draws[j])
              : encode(kFormat, w[j]);
      lost += code == out[j].bits && w[j] != to_float(out[j]) ? 1 : 0;
      out[j].bits = static_cast<uint16_t>(code);
    }
  }
}

}  // namespace detail

/// Applies `rule` to all weights, 64 at a time, unless the step is skipped; counts lost updates.
/// rule(first, u, w, decays) turns the 64 weights w (FP32) from offset `first` on into their
/// successors; u is the gradient, unscaled and clipped.
template <class Rule>
void update_weights_cpu(const ParameterBuffers& buffers, StepState& state, const Rule& rule) {
  StepScalars& s = state.scalars();
  if (s.apply == 0) {
    return;
  }
  const RandomStream stream{philox_key(buffers.random.seed, "weight_update"),
                            static_cast<uint32_t>(s.iteration)};
  const float* gradients = buffers.gradients.data<float>();
  const uint8_t* decays = buffers.decays.data<uint8_t>();
  const float unscale = s.unscale;
  const float clip = s.clip_factor;
  std::atomic<int64_t> lost_updates{0};

  const auto run = [&]<class T, class C>(T* weights, C* copies) {
    constexpr int64_t kGrain = 128;  // blocks of 64 that a thread picks at a time
    const int64_t num_blocks = buffers.gradients.numel() / kParameterAlignment;
    parallel_for_range(num_blocks, kGrain, [&](int64_t begin, int64_t end) {
      int64_t lost = 0;
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kParameterAlignment;
        float u[kParameterAlignment];
        float w[kParameterAlignment];
        for (int64_t j = 0; j < kParameterAlignment; ++j) {
          u[j] = gradients[first + j] * unscale * clip;
        }
        detail::load_weights(weights + first, w);
        rule(first, u, w, decays[block] != 0);
        detail::store_weights(w, weights + first, buffers.rounding, stream, first, lost);
        if (copies != nullptr) {
          convert(w, kParameterAlignment, copies + first);
        }
      }
      lost_updates += lost;
    });
  };
  const auto with_copies = [&]<class T>(T* weights) {
    if (!buffers.copies.defined()) {
      run(weights, static_cast<BFloat16*>(nullptr));
    } else if (buffers.copies.dtype() == DType::bf16) {
      run(weights, buffers.copies.data<BFloat16>());
    } else {
      run(weights, buffers.copies.data<Half>());
    }
  };
  if (buffers.weights.dtype() == DType::f32) {
    with_copies(buffers.weights.data<float>());
  } else if (buffers.weights.dtype() == DType::bf16) {
    run(buffers.weights.data<BFloat16>(), static_cast<BFloat16*>(nullptr));
  } else {
    run(buffers.weights.data<Half>(), static_cast<Half*>(nullptr));
  }
  s.lost_updates = lost_updates;
}

}  // namespace halftone
