// The learning rate of every update: warm-up, then a cosine down to min_lr. Computed on the host in
// double and kept as an FP32 table that both backends read, together with Adam's bias corrections.
// The schedule counts updates, so a skipped step does not advance it.
// Source: nanoGPT's conventions; Loshchilov & Hutter 2017, arXiv:1608.03983.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace halftone {

struct ScheduleOptions {
  double lr = 1e-3;
  double min_lr = 0.0;
  int64_t warmup = 0;  // updates
  int64_t steps = 1;   // updates until min_lr is reached
};

/// lr * (update + 1) / (warmup + 1) while update < warmup; then the cosine from lr at `warmup` to
/// min_lr at `steps`; min_lr from there on. `update` counts from 0.
double learning_rate(const ScheduleOptions& options, int64_t update);

/// f32 [steps, 3]: learning rate, 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t), t = update + 1
/// (ops/weight_update/weight_update.h). Throws std::invalid_argument unless steps >= 1 and
/// warmup >= 0.
Tensor make_schedule(const ScheduleOptions& options, double beta1, double beta2, Device device);

}  // namespace halftone
