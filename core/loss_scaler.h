// Loss scaling as a state machine: all_finite in, the next scale out. `advance` is the whole of it,
// a pure function that the host and a one-thread kernel share, so that the state can live on the
// device and a step needs no host read. The order of a step: scale the FP32 loss, backward, unscale
// once, judge the unscaled gradients, clip, step or skip, advance. A batch without targets makes no
// update and is not shown to the scaler. Source: Micikevicius et al. 2018, arXiv:1710.03740,
// section 3.2; doubling and halving as torch.amp.GradScaler does, with a floor and a cap.
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

/// Trivially copyable. A checkpoint holds all four fields, to go on with the same steps.
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

}  // namespace halftone
