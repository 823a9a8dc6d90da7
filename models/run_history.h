// What a checkpoint keeps of a run's course: one value a step and one an evaluation, in memory,
// without timings, so that a resumed run's file equals an uninterrupted one's.
#pragma once

#include <cstdint>
#include <vector>

#include "data/hdf5_file.h"
#include "models/run_observer.h"

namespace halftone {

class RunHistory : public RunObserver {
 public:
  void step(const StepEvent& event) override;
  void eval(const EvalEvent& event) override;

  /// /metrics/<field>: loss, lr, grad_norm, loss_scale, skipped, targets, lost_updates [steps];
  /// eval_step, val_loss and, of classifiers, accuracy [evaluations].
  void write(Hdf5File& file) const;
  void read(const Hdf5File& file);

  /// The last evaluation and the smallest validation loss so far; empty before the first.
  std::optional<Evaluation> last() const;
  std::optional<double> best_loss() const;

 private:
  std::vector<float> loss_;
  std::vector<double> lr_;
  std::vector<float> grad_norm_;
  std::vector<float> loss_scale_;
  std::vector<uint8_t> skipped_;
  std::vector<int64_t> targets_;
  std::vector<int64_t> lost_updates_;
  std::vector<int64_t> eval_step_;
  std::vector<double> val_loss_;
  std::vector<double> accuracy_;  // empty, or one an evaluation
};

}  // namespace halftone
