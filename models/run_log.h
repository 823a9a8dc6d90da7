// The log of a run: one JSON object a line, each with `event`: start, step (every iteration), eval,
// and last summary. Lines are written when the trainer has read what steps left on the device. A
// resumed run drops the lines past its checkpoint, then appends.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "models/json.h"
#include "models/run_observer.h"

namespace halftone {

class RunLog : public RunObserver {
 public:
  /// Opens `path` anew, or, for a run resumed at iteration `resumed_at` >= 0, keeps the lines up to
  /// it: the file is replaced at once, so that nothing is lost on the way. Throws FileError with
  /// the operating system's reason, or where a resumed run finds a file that is no log.
  explicit RunLog(const std::filesystem::path& path, int64_t resumed_at = -1);

  /// Begins a run with its start line. `unit`: "samples" or "tokens". `has_lost_updates`: whether
  /// steps say how many updates rounding lost.
  void start(const JsonObject& config, std::string_view unit, bool has_lost_updates);

  void step(const StepEvent& event) override;
  void eval(const EvalEvent& event) override;
  void caught_up() override;
  void summary(const RunSummary& summary) override;

 private:
  void write(const JsonObject& line);

  std::filesystem::path path_;
  std::ofstream out_;
  std::string rate_name_;  // "samples_per_s" or "tokens_per_s"
  bool has_lost_updates_ = false;
};

/// The lines of a log that a run resumed at `iteration` keeps: start, and steps and evaluations up
/// to it. A last line without its end is dropped.
std::string keep_log_until(std::string_view log, int64_t iteration);

}  // namespace halftone
