// The training loop: micro-batches, the optimizer, evaluation, checkpoints, the end. It knows
// neither images nor tokens (models/task.h) and decides nothing about a step (ops/step_state): it
// reads what steps left on the device in batches and tells observers. On a GPU the first step runs
// op by op, which warms the memory pool; the second is recorded as a CUDA graph and replayed from
// then on. Steps with a shorter micro-batch, evaluations and hooks run outside of it. Ctrl-C lets
// the step finish.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cuda/graph.h"
#include "models/optimizer.h"
#include "models/run_observer.h"
#include "models/task.h"

namespace halftone {

struct TrainerOptions {
  int64_t steps = 1;             // of the whole run
  int64_t grad_accum = 1;        // micro-batches a step
  int64_t eval_every = 0;        // steps; 0: at the end alone
  int64_t checkpoint_every = 0;  // steps; 0: at the end alone
  int64_t print_every = 10;      // steps whose records are read together
  int64_t stop_after = -1;       // write a checkpoint at this iteration and stop; -1: never
  bool graph = true;             // on a GPU: steps are replayed as a CUDA graph; the same bits
};

/// The gradients stay non-finite and no lower loss scale is left.
class TrainingFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class RunEnd : uint8_t { finished, stopped, interrupted };

/// What a program adds to the loop; each may be empty.
struct TrainerHooks {
  std::function<std::string()> save{};             // writes a checkpoint; returns its path
  std::function<void(const MicroBatch&)> batch{};  // before a step, for each of its micro-batches
  // Told the number of the step that ended, from 1; returns whether it read from the device.
  std::function<bool(int64_t)> after_step{};
};

class Trainer {
 public:
  /// All references outlive the trainer.
  Trainer(Task& task,
          Optimizer& optimizer,
          StepState& state,
          const TrainerOptions& options,
          std::vector<RunObserver*> observers,
          TrainerHooks hooks);

  /// The evaluations of an earlier part of the run, for the summary.
  void recall(const std::optional<Evaluation>& last, const std::optional<double>& best_loss) {
    summary_.last = last;
    summary_.best_loss = best_loss;
  }

  /// Trains from the state's iteration to the end, or until it is stopped or interrupted. Throws
  /// TrainingFailed with the iteration and the first non-finite tensor.
  RunEnd run();

 private:
  MicroBatch micro_batch(int64_t index) const;  // of the step that comes next
  void step();
  void launch_step();
  void catch_up();
  void evaluate();
  void save_checkpoint();
  void summarise();
  void fail(const StepRecord& record) const;

  Task& task_;
  Optimizer& optimizer_;
  StepState& state_;
  TrainerOptions options_;
  std::vector<RunObserver*> observers_;
  TrainerHooks hooks_;
  int64_t iteration_;          // steps begun by the host
  int64_t told_;               // steps whose records were read
  int64_t skipped_;            // among them, and before this process
  int64_t untold_units_ = 0;   // samples or tokens of the steps not told yet
  int64_t all_units_ = 0;      // of this process
  double untold_since_ = 0.0;  // when the first of them began, in seconds of a steady clock
  double step_seconds_ = 0.0;  // of this process, evaluation and checkpoints left out
  double run_seconds_ = 0.0;
  int64_t sync_calls_ = 0;  // an evaluation and a checkpoint count as one each
  int64_t saved_at_ = -1;
  // A graph serves steps whose micro-batches all have as many units as the largest so far.
  int64_t usual_units_ = 0;
  bool is_warm_ = false;  // such a step has run op by op
  std::optional<cuda::Graph> graph_;
  RunSummary summary_;
};

}  // namespace halftone
