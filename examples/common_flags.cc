#include "examples/common_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <new>
#include <typeinfo>

#include "core/cuda/gpu.h"
#include "core/parallel.h"
#include "ops/gemm/gemm_config.h"

namespace halftone {
namespace {

using Kind = Flag::Kind;
using Scope = Flag::Scope;

void add_text(Flags& flags, const char* name, Scope scope, const char* help) {
  flags.add({.name = name, .kind = Kind::text, .help = help, .scope = scope});
}

void add_present(Flags& flags, const char* name, Scope scope, const char* help) {
  flags.add({.name = name, .kind = Kind::present, .help = help, .scope = scope});
}

void add_integer(Flags& flags,
                 const char* name,
                 const std::string& value,
                 double low,
                 Scope scope,
                 const char* help,
                 double high = 1e12) {
  flags.add({.name = name,
             .kind = Kind::integer,
             .default_value = value,
             .help = help,
             .scope = scope,
             .low = low,
             .high = high});
}

// A real number in [low, high], or in [low, high) where `below`.
void add_real(Flags& flags,
              const char* name,
              const std::string& value,
              const char* help,
              double high = std::numeric_limits<double>::infinity(),
              bool below = false) {
  flags.add({.name = name,
             .kind = Kind::real,
             .default_value = value,
             .help = help,
             .scope = Scope::run,
             .low = 0.0,
             .high = high,
             .below_high = below});
}

std::string canonical_recipe(const std::string& text) {
  return text == "help" ? text : to_string(parse_recipe(text));
}

std::string canonical_loss_scale(const std::string& text) {
  return to_string(parse_loss_scale(text));
}

void add_precision_flags(Flags& flags) {
  flags.add({.name = "precision",
             .kind = Kind::text,
             .default_value = "fp32",
             .help = "recipe; --precision help lists them",
             .repeats = true,
             .canonical = canonical_recipe});
  flags.add({.name = "loss-scale",
             .kind = Kind::text,
             .help = "dynamic, none or a number; rewrites the recipe's loss_scale",
             .scope = Scope::process,  // stored as part of the recipe
             .canonical = canonical_loss_scale});
  add_real(flags, "loss-scale-init", "65536", "dynamic: the scale at the start");
  add_integer(flags,
              "loss-scale-growth-interval",
              "2000",
              1,
              Scope::run,
              "dynamic: finite steps in a row that double the scale",
              2147483647.0);
  add_real(flags, "loss-scale-min", "1", "dynamic: the smallest scale");
  add_real(flags, "loss-scale-max", "16777216", "dynamic: the largest scale");
}

void add_training_flags(Flags& flags, const TrainingDefaults& defaults) {
  add_integer(flags, "steps", "", 1, Scope::adjustable, "iterations of the whole run", 1e9);
  flags.add({.name = "epochs",
             .kind = Kind::real,
             .default_value = defaults.epochs,
             .help = "passes over the training data, instead of --steps",
             .scope = Scope::process,  // stored as steps
             .low = 0.0,
             .high = 1e6});
  add_integer(flags, "batch", defaults.batch, 1, Scope::run, "rows of a micro-batch", 1e9);
  add_integer(flags, "grad-accum", defaults.grad_accum, 1, Scope::run, "micro-batches a step", 1e6);
  add_real(flags, "lr", defaults.lr, "learning rate after the warm-up");
  add_real(flags, "min-lr", defaults.min_lr, "learning rate at the end of the cosine");
  add_integer(flags, "warmup", defaults.warmup, 0, Scope::run, "updates of warm-up");
  flags.add({.name = "optimizer",
             .kind = Kind::choice,
             .default_value = "adamw",
             .help = "the optimizer",
             .choices = {"adamw", "sgd"}});
  add_real(flags, "momentum", "0.9", "of sgd", 1.0, true);
  add_real(flags, "beta1", defaults.beta1, "of adamw", 1.0, true);
  add_real(flags, "beta2", defaults.beta2, "of adamw", 1.0, true);
  add_real(flags, "weight-decay", defaults.weight_decay, "decoupled, on matrices alone");
  add_real(flags, "clip", defaults.clip, "largest gradient norm; 0 does not clip");
  add_real(flags, "dropout", defaults.dropout, "share of activations dropped", 1.0, true);
  add_integer(flags, "seed", "1", 0, Scope::run, "of weights, data order, dropout, rounding", 9e18);
}

void add_run_flags(Flags& flags) {
  add_text(flags, "device", Scope::process, "auto, cpu, cuda or cuda:N (auto)");
  add_integer(flags, "threads", "", 1, Scope::process, "CPU threads (all)", 1024);
  add_text(flags, "log", Scope::process, "write the run to this file, one JSON object a line");
  add_text(flags, "out", Scope::process, "write checkpoints to this file (RUN.h5)");
  add_present(flags, "overwrite", Scope::process, "let --out replace an existing file");
  add_text(flags, "resume", Scope::process, "go on with the run of this checkpoint");
  add_text(flags, "init", Scope::process, "start from the parameters of this checkpoint");
  add_integer(flags,
              "checkpoint-every",
              "0",
              0,
              Scope::adjustable,
              "iterations between checkpoints; 0: at the end alone");
  add_integer(flags,
              "eval-every",
              "",
              0,
              Scope::adjustable,
              "iterations between evaluations; 0: at the end alone");
  add_integer(flags, "print-every", "", 1, Scope::process, "iterations between lines of progress");
  add_integer(flags,
              "stop-after",
              "",
              0,
              Scope::process,
              "write a checkpoint when this iteration is reached, and stop");
  flags.add({.name = "graph",
             .kind = Kind::choice,
             .default_value = "on",
             .help = "GPU: replay steps as CUDA graphs",
             .scope = Scope::process,
             .choices = {"on", "off"}});
  add_present(flags,
              "exact",
              Scope::run,
              "only kernels with the bits of the op-by-op path (all have them)");
  add_text(flags, "gemm", Scope::process, "hold every product to this kernel");
  add_integer(flags,
              "histograms",
              "0",
              0,
              Scope::run,
              "iterations between histograms of weights and gradients; 0: none");
  add_text(flags, "dump-batches", Scope::process, "write the rows of every batch to this file");
  add_present(flags, "quiet", Scope::process, "print no progress");
}

void check_kernel(const std::string& name, const Device& device) {
  const auto is_named = [&](GemmKernel kernel) { return name_of(kernel) == name; };
  if (device.is_cpu() && name != "eigen" && name != "emulated") {
    throw_usage("--gemm: '", name, "' is no kernel of the CPU, which has eigen and emulated");
  }
  if (device.is_cuda() &&
      std::none_of(std::begin(kGemmKernels), std::end(kGemmKernels), is_named)) {
    std::string list;
    for (const GemmKernel kernel : kGemmKernels) {
      list += concat(list.empty() ? "" : ", ", name_of(kernel));
    }
    throw_usage("--gemm: '", name, "' is no kernel of a GPU, which has ", list);
  }
}

// auto: the first usable GPU; what is wrong with cuda:0 where none is.
ChosenDevice first_usable() {
  const cuda::GpuFacts first = cuda::inspect_gpu(0);
  for (int index = 0; index < first.count; ++index) {
    const cuda::GpuFacts facts = cuda::inspect_gpu(index);
    if (cuda::why_unusable(facts).empty()) {
      return {{DeviceType::cuda, index}, cuda::describe(facts)};
    }
  }
  return {{}, concat("no GPU: ", cuda::why_unusable(first))};
}

ChosenDevice device_named(const std::string& name) {
  if (name == "auto") {
    return first_usable();
  }
  if (name == "cpu") {
    return {};
  }
  int index = 0;
  const std::string digits = name.starts_with("cuda:") ? name.substr(5) : "0";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_whole = error == std::errc() && end == digits.data() + digits.size() && index >= 0;
  if ((name != "cuda" && !name.starts_with("cuda:")) || !is_whole) {
    throw_usage("--device: '", name, "' is not auto, cpu, cuda or cuda:N");
  }
  const cuda::GpuFacts facts = cuda::inspect_gpu(index);
  if (const std::string why = cuda::why_unusable(facts); !why.empty()) {
    throw std::runtime_error(concat("--device ", name, ": ", why, "; use --device cpu"));
  }
  return {{DeviceType::cuda, index}, cuda::describe(facts)};
}

void print_error(const std::string& program, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program.c_str(), message.c_str());
}

}  // namespace

void add_common_flags(Flags& flags, const TrainingDefaults& defaults) {
  add_precision_flags(flags);
  add_training_flags(flags, defaults);
  add_run_flags(flags);
}

void check_common_flags(const Flags& flags) {
  if (flags.given("resume") && flags.given("init")) {
    throw_usage("--resume and --init exclude each other");
  }
  if (flags.texts("precision").size() > 1 && (flags.has("resume") || flags.has("out"))) {
    throw_usage("--out and --resume hold one run: give one --precision");
  }
  if (!flags.has("out") && !flags.has("resume")) {
    for (const char* name : {"checkpoint-every", "stop-after"}) {
      if (flags.given(name)) {
        throw_usage("--", name, " writes checkpoints: say where with --out");
      }
    }
  }
}

void check_device_flags(const Flags& flags, const Device& device) {
  if (device.is_cpu() && flags.given("graph")) {
    throw_usage("--graph has no meaning on the CPU");
  }
  if (flags.has("gemm")) {
    check_kernel(flags.text("gemm"), device);
  }
}

std::vector<Recipe> recipes_of(const Flags& flags) {
  std::vector<Recipe> recipes;
  for (const std::string& text : flags.texts("precision")) {
    Recipe recipe = parse_recipe(text);
    if (flags.has("loss-scale")) {
      recipe.loss_scale = parse_loss_scale(flags.text("loss-scale"));
    }
    recipes.push_back(std::move(recipe));
  }
  return recipes;
}

ChosenDevice choose_device(const Flags& flags) {
  const std::string name = flags.has("device") ? flags.text("device") : "auto";
  const auto refuse_threads = [&](const std::string& device) {
    if (flags.given("threads")) {
      throw_usage("--threads has no meaning on ", device, "; give --device cpu");
    }
  };
  if (name.starts_with("cuda")) {
    refuse_threads(name);  // before the GPU is looked for: the command line alone is wrong
  }
  ChosenDevice chosen = device_named(name);
  if (chosen.device.is_cuda()) {
    refuse_threads(to_string(chosen.device));
  }
  return chosen;
}

int64_t total_steps(const Flags& flags, double batches_per_epoch) {
  if (flags.given("steps") && flags.given("epochs")) {
    throw_usage("--steps and --epochs exclude each other");
  }
  if (flags.has("steps") && !flags.given("epochs")) {
    return flags.integer("steps");
  }
  if (flags.real("epochs") <= 0.0) {
    throw_usage("--epochs: '", flags.text("epochs"), "' is not a number above 0");
  }
  const double steps =
      flags.real("epochs") * batches_per_epoch / static_cast<double>(flags.integer("grad-accum"));
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps)));
}

LossScalerConfig scaler_config(const Flags& flags, const Recipe& recipe) {
  LossScalerConfig config = loss_scaler_config(recipe.loss_scale);
  if (config.dynamic) {
    config.init = static_cast<float>(flags.real("loss-scale-init"));
    config.floor = static_cast<float>(flags.real("loss-scale-min"));
    config.ceiling = static_cast<float>(flags.real("loss-scale-max"));
    config.growth_interval = static_cast<int32_t>(flags.integer("loss-scale-growth-interval"));
  }
  try {
    check_loss_scaler(config);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return config;
}

OptimizerOptions optimizer_options(const Flags& flags, int64_t steps) {
  return {.kind = flags.text("optimizer") == "sgd" ? OptimizerOptions::Kind::sgd
                                                   : OptimizerOptions::Kind::adamw,
          .beta1 = flags.real("beta1"),
          .beta2 = flags.real("beta2"),
          .momentum = flags.real("momentum"),
          .weight_decay = flags.real("weight-decay"),
          .schedule = {.lr = flags.real("lr"),
                       .min_lr = flags.real("min-lr"),
                       .warmup = flags.integer("warmup"),
                       .steps = steps}};
}

TrainerOptions trainer_options(const Flags& flags) {
  return {.steps = flags.integer("steps"),
          .grad_accum = flags.integer("grad-accum"),
          .eval_every = flags.integer("eval-every"),
          .checkpoint_every = flags.integer("checkpoint-every"),
          .print_every = flags.integer("print-every"),
          .stop_after = flags.has("stop-after") ? flags.integer("stop-after") : -1,
          .graph = flags.is_on("graph")};
}

int run_main(Flags& flags, int argc, const char* const* argv, const std::function<int()>& body) {
  try {
    flags.parse(argc, argv);
    int status = 0;
    if (flags.is_on("help")) {
      std::fputs(flags.help().c_str(), stdout);
    } else if (flags.is_declared("precision") && flags.text("precision") == "help") {
      std::fputs(recipe_help().c_str(), stdout);
    } else {
      if (flags.is_declared("threads") && flags.has("threads")) {
        set_num_threads(static_cast<int>(flags.integer("threads")));
      }
      status = body();
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw std::runtime_error("cannot write to standard output");
    }
    return status;
  } catch (const UsageError& error) {
    print_error(flags.program(), concat(error.what(), " (", flags.program(), " --help)"));
    return 2;
  } catch (const std::exception& error) {
    const bool is_mute = typeid(error) == typeid(std::bad_alloc);  // OutOfMemory says more
    print_error(flags.program(), is_mute ? "out of memory" : error.what());
    return 1;
  }
}

int exit_status(RunEnd end) { return end == RunEnd::interrupted ? 130 : 0; }

}  // namespace halftone
