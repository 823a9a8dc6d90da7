// What happens during a run, told to whoever listens: the JSON log, the console, the history that a
// checkpoint keeps. Steps are told in batches, when their records are read from the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/storage.h"
#include "models/task.h"
#include "ops/step_state/step_state.h"

namespace halftone {

struct StepEvent {
  StepRecord record;
  double lr = 0.0;                // of the update that the step was to make
  double units_per_second = 0.0;  // over the steps told together
  double seconds_per_step = 0.0;  // likewise
  int64_t skipped_so_far = 0;
};

struct EvalEvent {
  int64_t step = 0;
  Evaluation evaluation;
};

struct RunSummary {
  int64_t steps = 0;
  int64_t total_steps = 0;
  std::optional<Evaluation> last;
  std::optional<double> best_loss;
  double seconds = 0.0;  // in this process
  double units_per_second = 0.0;
  int64_t skipped = 0;
  // Times the host stopped to read from the device: records of steps, an evaluation, histograms, a
  // checkpoint.
  int64_t sync_calls = 0;
  MemoryStats memory;
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step(const StepEvent&) {}
  virtual void eval(const EvalEvent&) {}
  /// All that is known has been told; a good moment to flush.
  virtual void caught_up() {}
  virtual void checkpoint(int64_t /*step*/, const std::string& /*path*/) {}
  virtual void summary(const RunSummary&) {}
};

}  // namespace halftone
