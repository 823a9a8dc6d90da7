// The scalars of a training step, in the memory of the device that trains: counters, loss scale,
// gradient norm, clip factor, and the decision to apply the step or to skip it. Every op of the
// step reads and writes them there, so that nothing waits for the host and a captured graph stays
// valid. One step runs
//   { begin_micro_batch, forward, backward, add_loss }..., decide_step (ops/finite_norm), and an
//   optimizer's step (ops/weight_update), which ends it and begins the next.
// A skipped step changes nothing but the scaler, the skip counters and `iteration`.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device.h"
#include "core/loss_scaler.h"
#include "core/random.h"
#include "core/tensor.h"

namespace halftone {

struct StepScalars {
  // The two counters of RandomSource come first and lie together.
  int64_t iteration = 0;          // optimizer attempts that have ended
  int64_t micro_batch = 0;        // of the attempt that runs
  int64_t update = 0;             // optimizer attempts that were applied
  int64_t skipped = 0;            // and that were not
  int64_t targets = 0;            // in the micro-batches of this step so far
  int64_t first_non_finite = -1;  // offset in the flat gradient buffer; -1: all are finite
  int64_t lost_updates = 0;       // weights that rounding left as they were (no master weights)
  int64_t apply = 0;              // 1: the optimizer applies the step
  LossScalerState scaler;
  float loss_sum = 0.0f;     // over the targets of this step
  float unscale = 1.0f;      // gradient buffer * unscale = gradient of the mean loss
  float grad_norm = 0.0f;    // of the gradient of the mean loss, before clipping
  float clip_factor = 1.0f;  // at most 1
  float used_scale = 1.0f;   // the loss scale of this step
  uint32_t arrived = 0;      // blocks of a running kernel that are done (core/cuda/last_block.cuh)
};

/// What is fixed for a run. In the backward pass one target weighs scale * loss_factor /
/// nominal_targets, so that 16-bit gradients have the size of a mean's; what the step's targets
/// differ from the nominal number, and loss_factor, are taken back when gradients are unscaled, in
/// FP32.
struct StepRules {
  LossScalerConfig scaler;
  double nominal_targets = 1.0;
  float loss_factor = 1.0f;  // studies of small gradients multiply the loss by it
  float clip_norm = 0.0f;    // 0: no clipping
};

/// What the log says of one step, written to memory at its end and read by the host in batches.
struct StepRecord {
  int64_t iteration;  // from 1
  int64_t update;     // the update that this step was to make, from 0: its place in the schedule
  int64_t targets;
  int64_t lost_updates;
  int64_t first_non_finite;
  int32_t skipped;     // 1: skipped
  int32_t has_failed;  // 1: the run should end (core/loss_scaler.h)
  float loss;          // mean over the targets, 0 without any
  float grad_norm;
  float loss_scale;  // as used
  float next_loss_scale;
};

/// The step's memory on one device.
class StepState {
 public:
  static constexpr int kRecords = 1024;  // ring of step records; read at least that often

  StepState(const StepRules& rules, Device device);

  const StepRules& rules() const { return rules_; }
  /// In the memory of the device: host code may follow them on the CPU alone.
  StepScalars& scalars() const;
  StepRecord* records() const;
  const Tensor& memory() const { return memory_; }
  /// f32 []: what one target's loss weighs in the backward pass.
  const Tensor& target_weight() const { return target_weight_; }
  /// f32 []: 1, what the backward pass starts from.
  const Tensor& one() const { return one_; }
  /// Where randomness reads its counters.
  RandomSource random(uint64_t seed) const;

  /// Copies to and from the host; waits for the device.
  StepScalars read() const;
  void write(const StepScalars& scalars);
  /// The records of iterations (`after`, `until`], at most kRecords. Waits for the device.
  std::vector<StepRecord> read_records(int64_t after, int64_t until) const;

 private:
  StepRules rules_;
  Tensor memory_;   // i64, a StepScalars
  Tensor records_;  // i64, kRecords StepRecords
  Tensor target_weight_;
  Tensor one_;
};

/// Starts an optimizer attempt: no loss and no targets yet, target_weight() from the loss scale,
/// the first micro-batch. Called where no step's end did: before the first step, and behind
/// StepState::write.
void begin_step(StepState& state);
/// Randomness of what follows belongs to this micro-batch. Not needed for the first.
void begin_micro_batch(StepState& state, int64_t micro_batch);
/// Adds a micro-batch's summed loss (f32 []) and its number of targets (i32 []), and sets `unscale`
/// for the targets so far.
void add_loss(StepState& state, const Tensor& loss_sum, const Tensor& targets);

}  // namespace halftone
