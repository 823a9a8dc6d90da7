#include "core/loss_scaler.h"

#include <stdexcept>

#include "core/check.h"

namespace halftone {

LossScalerConfig loss_scaler_config(const LossScale& loss_scale) {
  switch (loss_scale.mode) {
    case LossScale::Mode::dynamic:
      return {};
    case LossScale::Mode::fixed:
      return {.dynamic = false, .init = loss_scale.value};
    case LossScale::Mode::none:
      return {.dynamic = false, .init = 1.0f};
  }
  throw std::logic_error("loss_scaler_config: not a LossScale");
}

void check_loss_scaler(const LossScalerConfig& c) {
  const auto within = [](float low, float x, float high) {
    return low <= x && x <= high;
  };  // false for NaN
  HALFTONE_CHECK(within(0x1p-126f, c.init, 0x1p126f),
                 "loss scale ",
                 c.init,
                 ": expected a number from 2^-126 to 2^126");
  HALFTONE_CHECK(
      !c.dynamic || (within(0x1p-126f, c.floor, c.init) && within(c.init, c.ceiling, 0x1p126f)),
      "loss scale: expected min <= init <= max within 2^-126 to 2^126, found min ",
      c.floor,
      ", init ",
      c.init,
      ", max ",
      c.ceiling);
  HALFTONE_CHECK(c.growth_interval >= 1,
                 "loss scale: growth interval ",
                 c.growth_interval,
                 ", expected at least 1 step");
  HALFTONE_CHECK(
      c.patience >= 1, "loss scale: patience ", c.patience, ", expected at least 1 step");
}

LossScaler::LossScaler(const LossScalerConfig& config)
    : LossScaler(config, {.scale = config.init}) {}

LossScaler::LossScaler(const LossScalerConfig& config, const LossScalerState& state)
    : config_(config), state_(state) {
  check_loss_scaler(config);
}

float LossScaler::unscale() {
  if (unscaled_) {
    throw std::logic_error(
        "loss scaler: unscale called twice in one iteration; the gradients are unscaled already");
  }
  unscaled_ = true;
  return 1.0f / state_.scale;
}

void LossScaler::update(bool all_finite) {
  if (!unscaled_) {
    throw std::logic_error(
        "loss scaler: update before unscale; unscale the gradients and judge those");
  }
  unscaled_ = false;
  state_ = advance(config_, state_, all_finite);
}

}  // namespace halftone
