// The flags that every training program shares, what they mean to the library, and how a program
// ends: exit status 0 done, 2 the command line alone is wrong, 1 anything else, 130 Ctrl-C.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/recipe.h"
#include "examples/flags.h"
#include "models/optimizer.h"
#include "models/trainer.h"

namespace halftone {

/// What a program takes when its user says nothing.
struct TrainingDefaults {
  std::string lr = "0.001";
  std::string min_lr = "0";
  std::string warmup = "0";
  std::string beta1 = "0.9";
  std::string beta2 = "0.999";
  std::string weight_decay = "0.01";
  std::string clip = "0";
  std::string dropout = "0";
  std::string batch = "128";
  std::string grad_accum = "1";
  std::string epochs{};  // where --steps has no value
};

/// Declares the flags of design section 7 that train_mlp and train_gpt share.
void add_common_flags(Flags& flags, const TrainingDefaults& defaults);

/// Checks what no single flag can: pairs that exclude each other. Throws UsageError.
void check_common_flags(const Flags& flags);
/// Checks flags and kernels without a meaning on the device. Throws UsageError.
void check_device_flags(const Flags& flags, const Device& device);

/// The recipes of `--precision`, with `--loss-scale` written into each. Throws UsageError.
std::vector<Recipe> recipes_of(const Flags& flags);

/// The device of `--device`, and what the first line says of it: the GPU's name, or why auto passed
/// over GPUs. auto takes the first usable GPU.
struct ChosenDevice {
  Device device;
  std::string note;
};
/// Throws UsageError where a flag has no meaning on the device, and std::runtime_error where the
/// GPU asked for is not usable.
ChosenDevice choose_device(const Flags& flags);

/// Iterations of the whole run: --steps, or --epochs of `batches_per_epoch` micro-batches each.
/// Throws UsageError.
int64_t total_steps(const Flags& flags, double batches_per_epoch);

LossScalerConfig scaler_config(const Flags& flags, const Recipe& recipe);
OptimizerOptions optimizer_options(const Flags& flags, int64_t steps);
/// Needs --steps, --eval-every and --print-every to have values.
TrainerOptions trainer_options(const Flags& flags);

/// Parses the command line, answers `--help` and `--precision help`, runs `body`, prints an
/// exception's message as one line on standard error, and returns the exit status.
int run_main(Flags& flags, int argc, const char* const* argv, const std::function<int()>& body);

/// The exit status of a finished, stopped or interrupted run.
int exit_status(RunEnd end);

}  // namespace halftone
