// Loss scaling as a state machine: all_finite in, the next scale out. `advance` is the whole of it,
// a pure function that the host and a one-thread kernel share, so that the state can live on the
// device and a step needs no host read. The order of a step: scale the FP32 loss, backward, unscale
// once, judge the unscaled gradients, clip, step or skip, advance. A batch without targets makes no
// update and is not shown to the scaler. Conventions: design.md section 3, cases.md 4a.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/recipe.h"

namespace halftone {

struct LossScalerConfig {
  bool dynamic = true;  // otherwise the scale stays `init`
  float init = 0x1p16f;
  float floor = 1.0f;
  float ceiling = 0x1p24f;
  int32_t growth_interval = 2000;  // finite steps in a row that double the scale
  int32_t patience = 50;           // skips in a row with no lower scale to try that end the run
};

/// Trivially copyable; `scale` and `growth` are what a checkpoint needs to go on with the same
/// steps.
struct LossScalerState {
  float scale = 1.0f;
  int32_t growth = 0;        // finite steps since the last change of scale or skip
  int32_t skips_in_row = 0;  // of any kind
  int32_t stuck_in_row = 0;  // those made at the floor, or with a scale that does not change
};

/// The state after a step whose unscaled gradients were all finite, or not: then the step is
/// skipped for every group.
HALFTONE_HD constexpr LossScalerState advance(const LossScalerConfig& config,
                                              LossScalerState state,
                                              bool all_finite) {
  if (all_finite) {
    state.skips_in_row = 0;
    state.stuck_in_row = 0;
    ++state.growth;
    if (config.dynamic && state.growth >= config.growth_interval) {
      state.growth = 0;
      state.scale = state.scale < config.ceiling / 2 ? state.scale * 2 : config.ceiling;
    }
    return state;
  }
  ++state.skips_in_row;
  state.growth = 0;
  if (config.dynamic && state.scale > config.floor) {
    state.scale = state.scale / 2 > config.floor ? state.scale / 2 : config.floor;
    state.stuck_in_row = 0;
  } else {
    ++state.stuck_in_row;
  }
  return state;
}

/// Whether the run should end: no smaller scale is left and the gradients stay non-finite.
HALFTONE_HD constexpr bool has_failed(const LossScalerConfig& config,
                                      const LossScalerState& state) {
  return state.stuck_in_row >= config.patience;
}

/// The config of a recipe's loss_scale: dynamic with the defaults above, or fixed (1 for none).
LossScalerConfig loss_scaler_config(const LossScale& loss_scale);

/// Throws std::invalid_argument unless 2^-126 <= floor <= init <= ceiling <= 2^126 (so that 1 /
/// scale is a normal number; a fixed scale only has to lie in the outer limits) and growth_interval
/// and patience are at least 1.
void check_loss_scaler(const LossScalerConfig& config);

/// The state machine for a host loop, which also guards the order of the calls.
class LossScaler {
 public:
  /// Checks the config; starts at config.init.
  explicit LossScaler(const LossScalerConfig& config);
  /// Goes on from the state of a checkpoint.
  LossScaler(const LossScalerConfig& config, const LossScalerState& state);

  /// The factor of the loss; the loss is FP32 before it is multiplied.
  float scale() const { return state_.scale; }
  const LossScalerState& state() const { return state_; }
  bool failed() const { return has_failed(config_, state_); }

  /// The factor that unscales this iteration's gradients, RN(1 / scale). Throws std::logic_error if
  /// they have been unscaled.
  float unscale();

  /// Ends the iteration, whether a step was taken or not. Throws std::logic_error if the gradients
  /// were not unscaled, since all_finite is judged on unscaled values.
  void update(bool all_finite);

 private:
  LossScalerConfig config_;
  LossScalerState state_;
  bool unscaled_ = false;
};

}  // namespace halftone
