// What each call of step_state.h does to the scalars of a step: written once, run by the host on
// the CPU's and by one thread of a GPU on its own. Pointers are into the memory of that device.
// What overflowed is one NaN on both, so that logs and records are the same to the byte.
#pragma once

#include <bit>

#include "ops/step_state/step_state.h"

namespace halftone::detail {

/// x, and one bit pattern for all NaNs: which of them arithmetic gives is the machine's choice.
HALFTONE_HD inline float one_nan(float x) { return x == x ? x : std::bit_cast<float>(0x7fc00000u); }

struct BeginStep {
  float* target_weight;

  HALFTONE_HD void operator()(const StepRules& rules, StepScalars& s) const {
    s.micro_batch = 0;
    s.targets = 0;
    s.loss_sum = 0.0f;
    s.lost_updates = 0;
    s.used_scale = s.scaler.scale;
    *target_weight = static_cast<float>(double{s.scaler.scale} * double{rules.loss_factor} /
                                        rules.nominal_targets);
  }
};

struct BeginMicroBatch {
  int64_t micro_batch;

  HALFTONE_HD void operator()(const StepRules&, StepScalars& s) const {
    s.micro_batch = micro_batch;
  }
};

struct AddLoss {
  const float* loss_sum = nullptr;
  const int32_t* targets = nullptr;

  HALFTONE_HD void operator()(const StepRules& rules, StepScalars& s) const {
    s.loss_sum = one_nan(s.loss_sum + *loss_sum);
    s.targets += *targets;
    // In double and rounded once: where the targets are the nominal ones it is exactly 1 / scale.
    const auto targets_so_far = static_cast<double>(s.targets > 1 ? s.targets : 1);
    s.unscale = static_cast<float>(rules.nominal_targets / targets_so_far / double{s.scaler.scale} /
                                   double{rules.loss_factor});
  }
};

/// Null pointers where there is no loss to add.
inline AddLoss loss_to_add(const Tensor& loss_sum, const Tensor& targets) {
  return loss_sum.defined() ? AddLoss{loss_sum.data<float>(), targets.data<int32_t>()} : AddLoss{};
}

struct DecideStep {
  HALFTONE_HD void operator()(const StepRules& rules, StepScalars& s) const {
    const float norm = s.grad_norm = one_nan(s.grad_norm);
    s.clip_factor =
        rules.clip_norm > 0.0f && norm > rules.clip_norm ? rules.clip_norm / norm : 1.0f;
    if (s.targets == 0) {
      s.apply = 0;  // nothing was learnt and nothing was measured: the scaler is left alone
      return;
    }
    const bool finite = s.first_non_finite < 0;
    s.scaler = advance(rules.scaler, s.scaler, finite);
    s.apply = finite ? 1 : 0;
  }
};

struct EndStep {
  StepRecord* records;  // the ring
  BeginStep begin_next;

  HALFTONE_HD void operator()(const StepRules& rules, StepScalars& s) const {
    ++s.iteration;
    StepRecord& record = records[s.iteration % StepState::kRecords];
    record.iteration = s.iteration;
    record.update = s.update;
    record.targets = s.targets;
    record.lost_updates = s.lost_updates;
    record.first_non_finite = s.first_non_finite;
    record.has_failed = has_failed(rules.scaler, s.scaler) ? 1 : 0;
    record.skipped = s.apply == 0 ? 1 : 0;
    record.loss = s.targets > 0 ? one_nan(s.loss_sum / static_cast<float>(s.targets)) : 0.0f;
    record.grad_norm = s.grad_norm;
    record.loss_scale = s.used_scale;
    record.next_loss_scale = s.scaler.scale;
    s.update += s.apply;
    s.skipped += 1 - s.apply;
    begin_next(rules, s);
  }
};

inline EndStep end_of_step(const StepState& state) {
  return {state.records(), {state.target_weight().data<float>()}};
}

/// One thread runs it on the scalars of the device; instantiated in step_state.cu for each of the
/// above.
template <class Transition>
void transition_cuda(const StepState& state, const Transition& transition);

}  // namespace halftone::detail
