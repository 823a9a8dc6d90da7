// Histograms of how large weights and gradients are: for each parameter, how many elements have
// each exponent of FP32. Taken every N steps, kept in memory, written with the checkpoint. They
// show at a glance what a narrow format would lose.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5_file.h"
#include "models/module.h"
#include "ops/step_state/step_state.h"

namespace halftone {

/// counts[e]: elements whose FP32 exponent field is e, so 2^(e-127) <= |x| < 2^(e-126); [0] holds
/// zeros and subnormals, [255] infinities and NaNs.
using ExponentHistogram = std::array<uint32_t, 256>;
ExponentHistogram exponent_histogram(std::span<const float> values);

class Instruments {
 public:
  /// `every` steps; 0: never.
  explicit Instruments(int64_t every) : every_(every) {}

  /// Takes them where this iteration is due, and says whether it was.
  bool take_if_due(int64_t iteration, const ParameterSet& parameters, const StepState& state) {
    const bool is_due = every_ > 0 && iteration % every_ == 0;
    if (is_due) {
      take(iteration, parameters, state);
    }
    return is_due;
  }
  /// Takes weights, and gradients unscaled as the step saw them. Waits for the device.
  void take(int64_t iteration, const ParameterSet& parameters, const StepState& state);

  /// /histogram/step i64 [k], /histogram/weight/PATH and /histogram/gradient/PATH u32 [k, 256].
  /// Nothing where none were taken.
  void write(Hdf5File& file) const;
  void read(const Hdf5File& file);

 private:
  int64_t every_;
  std::vector<int64_t> steps_;
  std::map<std::string, std::vector<uint32_t>> counts_;  // by "weight/PATH", "gradient/PATH"
};

}  // namespace halftone
