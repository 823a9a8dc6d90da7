// RUN.h5: everything a run needs to go on with the same bits, and what others read from it.
//   /param/PATH           what the forward pass reads: f32, or u16 with dtype "bf16" or "fp16"
//   /master/PATH          the FP32 weights behind 16-bit ones, where the recipe keeps them
//   /adam/m/PATH, /adam/v/PATH, or /sgd/momentum/PATH           f32
//   /amax/LAYER/x, w, dy  delayed scaling: f32 [history], attribute `pushed`
//   /metrics/FIELD        models/run_history.h         /histogram/...   models/instruments.h
//   /                     attributes: config (JSON), recipe, recipe_full, iteration, update, scale,
//                         growth, skips_in_row, stuck_in_row, skipped, data_position (the number of
//                         the next micro-batch), format_version
//   /checksum             data/hdf5_checksum.h
// PATH is the module path; matrices are [out, in], row-major. Rewritten whole each time,
// atomically.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/hdf5_file.h"
#include "models/instruments.h"
#include "models/json.h"
#include "models/optimizer.h"
#include "models/run_history.h"
#include "models/task.h"

namespace halftone {

/// A run's parts, as they are saved and restored. All references outlive the calls.
struct RunParts {
  Task& task;
  Optimizer& optimizer;
  StepState& state;
  RunHistory& history;
  Instruments& instruments;
  const Recipe& recipe;
  int64_t grad_accum = 1;
};

/// Writes the run to `path`, replacing what is there when all is on disk. Throws FileError.
void save_checkpoint(const std::filesystem::path& path,
                     const RunParts& run,
                     const std::string& config);

/// A checkpoint opened for reading.
class Checkpoint {
 public:
  using Fields = std::vector<std::pair<std::string, JsonValue>>;

  /// Throws FileError where the file is missing, cut short, changed since it was written, or not a
  /// checkpoint.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// The fields of the attribute `config`.
  const Fields& config() const { return config_; }
  /// A text field of the config, or "" without it.
  std::string config_text(std::string_view key) const;
  Recipe recipe() const { return parse_recipe(file_.text("/", "recipe")); }
  int64_t iteration() const { return file_.integer("/", "iteration"); }

  /// The parameters alone, from the FP32 weights where there are any, rounded to what `parameters`
  /// stores. Layers must be refreshed afterwards. Throws FileError naming the parameter where the
  /// file holds another model.
  void load_parameters(ParameterSet& parameters) const;
  /// Everything. Throws FileError where the file holds another model, optimizer or history length.
  void restore(const RunParts& run) const;

 private:
  std::vector<float> read_weights(const std::string& group, const Parameter& p) const;
  void read_flat(const std::string& group,
                 const ParameterSet& parameters,
                 const Tensor& flat) const;

  Hdf5File file_;
  Fields config_;
};

}  // namespace halftone
