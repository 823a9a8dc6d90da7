// One start of a training program: the flags, what --resume brings with it, the device, the log,
// the lock on --out. For each recipe the program makes its model and task, and the session trains
// them. Used by train_mlp and train_gpt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "data/run_lock.h"
#include "examples/common_flags.h"
#include "models/checkpoint.h"
#include "models/linear_layer.h"
#include "models/run_log.h"

namespace halftone {

/// What a program knows of a run before its model exists.
struct RunPlan {
  int64_t steps = 1;
  double nominal_targets = 1.0;  // of an optimizer step without ignored targets or short batches
  int64_t eval_every = 0;        // unless --eval-every says otherwise
  int64_t print_every = 10;      // unless --print-every does
};

class Session {
 public:
  /// Takes the settings of --resume into `flags`, then locks and checks --out. Throws UsageError,
  /// or FileError where a file is the reason.
  explicit Session(Flags& flags);

  /// The checkpoint of --resume, until train() has restored it.
  const std::optional<Checkpoint>& resumed() const { return resumed_; }

  /// --data, or the known name in the checkpoint of --resume. Throws UsageError where that was made
  /// with files: it holds no path.
  std::string data_spec() const;

  /// What a log and a checkpoint hold of the data: its name where it is a known one (no path is
  /// kept), and the SHA-256 of its parts. Throws FileError where --resume was trained on other
  /// data.
  JsonObject data_facts(const std::string& spec,
                        std::initializer_list<std::span<const std::byte>> parts) const;

  /// Calls `run` for each recipe until one is interrupted. Returns the program's exit status.
  int train_all(const std::function<RunEnd(const Recipe&)>& run);

  /// Starts a run: prints the first lines and makes its counters. What the model needs is in the
  /// context.
  LinearContext begin(const Recipe& recipe, const RunPlan& plan);
  /// Trains `task` to its end. `facts` are fields for the log and the checkpoint beside the program
  /// and the flags: the data's fingerprint, a vocabulary.
  RunEnd train(Task& task, const JsonObject& facts);

 private:
  uint64_t seed() const { return static_cast<uint64_t>(flags_.integer("seed")); }
  // Locks --out before anything is read, so that no other run replaces it in between.
  void take_out();
  void load_init(Task& task) const;
  void open_dump(Task& task, TrainerHooks& hooks);

  Flags& flags_;
  ChosenDevice device_;
  std::optional<Checkpoint> resumed_;
  std::vector<Recipe> recipes_;
  std::string out_;  // empty: no checkpoints
  std::optional<RunLock> lock_;
  std::optional<RunLog> log_;
  std::ofstream dump_;
  Recipe recipe_;
  RunPlan plan_;
  std::optional<StepState> state_;
};

}  // namespace halftone
