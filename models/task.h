// What a trainer trains: a model with its data. The trainer knows neither images nor tokens; it
// asks for the loss of micro-batch after micro-batch and, now and then, for an evaluation. Which
// rows a micro-batch holds is a function of the seed and its place in the run alone, so a
// resumed run sees what the uninterrupted one would have seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "models/linear_layer.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace halftone {

/// A measurement on the data held out.
struct Evaluation {
  double loss = 0.0;               // mean over the targets
  std::optional<double> accuracy;  // of a classifier: a fraction
};

/// Which micro-batch: `index` of 0 to grad_accum - 1 in optimizer attempt `iteration`, both from 0;
/// `number` counts micro-batches over the whole run.
struct MicroBatch {
  int64_t iteration = 0;
  int64_t index = 0;
  int64_t number = 0;
};

/// How a task makes its batches.
struct BatchPlan {
  int64_t batch = 1;       // rows of a micro-batch
  int64_t grad_accum = 1;  // micro-batches an iteration
  RandomSource random;     // the seed, and the counters of the device that trains
  // Data sets up to this size live on the device, larger ones are sent to it batch by batch.
  int64_t resident_bytes = int64_t{1} << 30;

  Device device() const { return random.counters.device(); }
};

class Task {
 public:
  virtual ~Task() = default;

  virtual ParameterSet& parameters() = 0;
  /// All linear layers, in the order of the forward pass.
  virtual std::vector<LinearLayer*> linear_layers() = 0;

  /// What the host does for a micro-batch, such as starting a copy of its data to the device:
  /// called for every micro-batch of a step, in order, before the step begins. A step that is
  /// replayed from a graph calls this, and not training_loss.
  virtual void prepare(const MicroBatch&) {}

  /// The loss of a micro-batch, recorded, so that backward(loss.loss) reaches every parameter.
  /// `target_weight` is f32 [] in memory (CrossEntropyOptions::weight). Randomness, and which rows
  /// are picked on a device, read the same iteration and index from the RandomSource that the model
  /// was made with, so that a captured call serves every iteration; `at.index` may be built into
  /// it.
  virtual CrossEntropy training_loss(const MicroBatch& at, const Tensor& target_weight) = 0;

  /// Measures on the held-out data, in a fixed order, without dropout and without recording. Opens
  /// a StepScope a batch.
  virtual Evaluation evaluate() = 0;

  /// What throughput counts: "samples" or "tokens".
  virtual std::string_view unit() const = 0;
  /// How many of them a micro-batch holds.
  virtual int64_t units(const MicroBatch& at) const = 0;
  /// The rows of the data set in a micro-batch: an image's index, a window's first token.
  virtual std::vector<int64_t> rows(const MicroBatch& at) = 0;
};

}  // namespace halftone
