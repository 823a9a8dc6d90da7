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

}  // namespace halftone
