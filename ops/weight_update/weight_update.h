// What every optimizer step shares: the flat buffers of a model's parameters, the unscaled and
// clipped gradient, and how a new weight is stored: in FP32, with a 16-bit copy refreshed in the
// same pass, or in 16 bits alone, rounded to nearest or stochastically. The pass ends the step. The
// optimizers' arithmetic is in ops/adamw_step and ops/sgd_step.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/convert.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "ops/step_state/transitions.h"

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

/// The table, in the memory of the device that trains.
struct ScheduleTable {
  const float* values;
  int64_t rows;

  /// The row of an update, the last row beyond the end.
  HALFTONE_HD ScheduleRow row(int64_t update) const {
    const float* at = values + 3 * (update < rows ? update : rows - 1);
    return {at[0], at[1], at[2]};
  }
};

/// Throws std::invalid_argument unless the table is f32 [rows >= 1, 3] on `device`.
ScheduleTable schedule_table(std::string_view op, const Tensor& schedule, Device device);

namespace detail {

inline constexpr std::string_view kWeightUpdatePurpose = "weight_update";

/// update_weights_cpu on a GPU: defined in ops/weight_update/weight_update.cuh, instantiated by
/// each optimizer's .cu.
template <class Rule>
void update_weights_cuda(const ParameterBuffers& buffers,
                         const std::array<float*, Rule::kMoments>& moments,
                         const ScheduleTable& schedule,
                         const Rule& rule,
                         StepState& state);

/// Calls body(weights, copies) with the elements as they are stored; copies are null without.
template <class Body>
void with_weights(const ParameterBuffers& buffers, const Body& body) {
  if (buffers.weights.dtype() == DType::bf16) {
    body(buffers.weights.data<BFloat16>(), static_cast<BFloat16*>(nullptr));
  } else if (buffers.weights.dtype() == DType::f16) {
    body(buffers.weights.data<Half>(), static_cast<Half*>(nullptr));
  } else if (!buffers.copies.defined()) {
    body(buffers.weights.data<float>(), static_cast<BFloat16*>(nullptr));
  } else if (buffers.copies.dtype() == DType::bf16) {
    body(buffers.weights.data<float>(), buffers.copies.data<BFloat16>());
  } else {
    body(buffers.weights.data<float>(), buffers.copies.data<Half>());
  }
}

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

/// Applies an optimizer's rule to all weights on the CPU, 64 at a time, unless the step is skipped;
/// counts lost updates. rule(row, u, decays, w, moments) turns the weight w (FP32) and its moments
/// into their successors; u is the gradient, unscaled and clipped. moments[k] are f32 [n].
template <class Rule>
void update_weights_cpu(const ParameterBuffers& buffers,
                        const std::array<float*, Rule::kMoments>& moments,
                        const ScheduleTable& schedule,
                        const Rule& rule,
                        StepState& state) {
  StepScalars& s = state.scalars();
  if (s.apply == 0) {
    return;
  }
  const RandomStream stream{philox_key(buffers.random.seed, detail::kWeightUpdatePurpose),
                            static_cast<uint32_t>(s.iteration)};
  const ScheduleRow row = schedule.row(s.update);
  const float* gradients = buffers.gradients.data<float>();
  const uint8_t* decays = buffers.decays.data<uint8_t>();
  const float unscale = s.unscale;
  const float clip = s.clip_factor;
  std::atomic<int64_t> lost_updates{0};

  detail::with_weights(buffers, [&]<class T, class C>(T* weights, C* copies) {
    constexpr int64_t kGrain = 128;  // blocks of 64 that a thread picks at a time
    const int64_t num_blocks = buffers.gradients.numel() / kParameterAlignment;
    parallel_for_range(num_blocks, kGrain, [&](int64_t begin, int64_t end) {
      int64_t lost = 0;
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kParameterAlignment;
        const bool decays_here = decays[block] != 0;
        float w[kParameterAlignment];
        detail::load_weights(weights + first, w);
        for (int64_t j = 0; j < kParameterAlignment; ++j) {
          const float u = gradients[first + j] * unscale * clip;
          float own[Rule::kMoments];
          for (size_t k = 0; k < Rule::kMoments; ++k) {
            own[k] = moments[k][first + j];
          }
          rule(row, u, decays_here, w[j], own);
          for (size_t k = 0; k < Rule::kMoments; ++k) {
            moments[k][first + j] = own[k];
          }
        }
        detail::store_weights(w, weights + first, buffers.rounding, stream, first, lost);
        if (copies != nullptr) {
          convert(w, kParameterAlignment, copies + first);
        }
      }
      lost_updates += lost;
    });
  });
  s.lost_updates = lost_updates;
}

/// The same on the device of the buffers; then ends the step, applied or skipped: writes its
/// record, counts the iteration and the update, and begins the next step.
template <class Rule>
void update_weights(std::string_view op,
                    const ParameterBuffers& buffers,
                    const std::array<float*, Rule::kMoments>& moments,
                    const Tensor& schedule,
                    const Rule& rule,
                    StepState& state) {
  const Device device = buffers.gradients.device();
  const ScheduleTable table = schedule_table(op, schedule, device);
  if (device.is_cpu()) {
    update_weights_cpu(buffers, moments, table, rule, state);
    detail::end_of_step(state)(state.rules(), state.scalars());
  } else if constexpr (kHasCuda) {
    detail::update_weights_cuda(buffers, moments, table, rule, state);
  }
}

}  // namespace halftone
