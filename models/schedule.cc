#include "models/schedule.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "core/check.h"

namespace halftone {

double learning_rate(const ScheduleOptions& options, int64_t update) {
  const auto at = static_cast<double>(update);
  const auto warmup = static_cast<double>(options.warmup);
  if (update < options.warmup) {
    return options.lr * (at + 1.0) / (warmup + 1.0);
  }
  if (update >= options.steps) {
    return options.min_lr;
  }
  const double progress = (at - warmup) / (static_cast<double>(options.steps) - warmup);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return options.min_lr + share * (options.lr - options.min_lr);
}

Tensor make_schedule(const ScheduleOptions& options, double beta1, double beta2, Device device) {
  HALFTONE_CHECK(options.steps >= 1 && options.warmup >= 0,
                 "schedule: ",
                 options.steps,
                 " steps with a warm-up of ",
                 options.warmup,
                 ", expected at least 1 and at least 0");
  std::vector<float> table;
  table.reserve(static_cast<size_t>(3 * options.steps));
  for (int64_t update = 0; update < options.steps; ++update) {
    const auto t = static_cast<double>(update + 1);
    table.push_back(static_cast<float>(learning_rate(options, update)));
    table.push_back(static_cast<float>(1.0 / (1.0 - std::pow(beta1, t))));
    table.push_back(static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t))));
  }
  return to_device(Tensor::from(table, {options.steps, 3}, MemoryCategory::moments), device);
}

}  // namespace halftone
