// Trains a multilayer perceptron on images (MNIST unless told otherwise) under one recipe, or under
// several, one after the other. See --help, or the README for the recipes.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>

#include "data/dataset.h"
#include "data/known_data.h"
#include "examples/common_flags.h"
#include "examples/report.h"
#include "models/image_task.h"
#include "models/run_log.h"

namespace halftone {
namespace {

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    HALFTONE_CHECK(error == std::errc() && size >= 1 && size <= 1 << 24,
                   "'",
                   text,
                   "' is not a list of layer sizes of at least 1, like 256,256");
    sizes.push_back(size);
    if (next == end) {
      return sizes;
    }
    HALFTONE_CHECK(*next == ',', "'", text, "' is not a list of layer sizes, like 256,256");
    at = next + 1;
  }
}

void add_flags(Flags& flags) {
  flags.add({.name = "data",
             .default_value = "mnist",
             .help = "mnist, synthetic, a folder with the four IDX files, or an .h5",
             .scope = Flag::Scope::process});
  flags.add({.name = "hidden",
             .default_value = "256,256",
             .help = "units of the hidden layers",
             .canonical = [](const std::string& text) {
               std::string list;
               for (const int64_t size : parse_sizes(text)) {
                 list += concat(list.empty() ? "" : ",", size);
               }
               return list;
             }});
  flags.add({.name = "epochs",
             .kind = Flag::Kind::real,
             .default_value = "5",
             .help = "passes over the training images, unless --steps is given",
             .scope = Flag::Scope::process,
             .low = 0.0,
             .high = 1e6});
  add_common_flags(flags, {});
}

// Iterations of the whole run: --steps, or --epochs in micro-batches.
int64_t total_steps(const Flags& flags, int64_t images) {
  if (flags.given("steps") && flags.given("epochs")) {
    throw_usage("--steps and --epochs exclude each other");
  }
  if (flags.has("steps") && !flags.given("epochs")) {
    return flags.integer("steps");
  }
  const auto per_epoch = static_cast<double>(batches_per_epoch(images, flags.integer("batch")));
  const double steps =
      flags.real("epochs") * per_epoch / static_cast<double>(flags.integer("grad-accum"));
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps)));
}

RunEnd train(Flags& flags, const Recipe& recipe, const ImageDataset& data, ChosenDevice chosen) {
  const auto seed = static_cast<uint64_t>(flags.integer("seed"));
  const int64_t batch = flags.integer("batch");
  print_first_lines(seed, chosen.device, chosen.why, recipe);

  const int64_t steps = total_steps(flags, data.train.count);
  const int64_t grad_accum = flags.integer("grad-accum");
  StepState state({.scaler = scaler_config(flags, recipe),
                   .nominal_targets = static_cast<double>(batch * grad_accum),
                   .clip_norm = static_cast<float>(flags.real("clip"))},
                  chosen.device);
  MlpOptions mlp_options;
  mlp_options.inputs = data.train.height * data.train.width;
  mlp_options.hidden = parse_sizes(flags.text("hidden"));
  mlp_options.outputs = data.num_classes;
  mlp_options.dropout = static_cast<float>(flags.real("dropout"));
  Mlp model(mlp_options, {recipe, state.random(seed), flags.text("gemm"), chosen.device});
  ImageTask task(model, data, batch, seed, chosen.device);
  Optimizer optimizer(optimizer_options(flags, steps), model.parameters(), state.random(seed));

  TrainerOptions options = trainer_options(flags, steps);
  if (!flags.has("eval-every")) {
    options.eval_every = std::max<int64_t>(
        1, batches_per_epoch(data.train.count, batch) / grad_accum);  // about an epoch
  }
  if (!flags.has("print-every")) {
    options.print_every = 50;
  }
  ConsoleReport report({.quiet = flags.is_on("quiet"),
                        .total_steps = steps,
                        .print_every = options.print_every,
                        .unit = std::string(task.unit())});
  std::vector<RunObserver*> observers{&report};
  std::unique_ptr<RunLog> log;
  if (flags.has("log")) {
    log = std::make_unique<RunLog>(flags.text("log"), task.unit(), !recipe.master);
    JsonObject config;
    flags.store(config);
    log->start(config);
    observers.push_back(log.get());
  }
  Trainer trainer(task, optimizer, state, options, observers, {});
  return trainer.run();
}

int run(Flags& flags) {
  const std::vector<Recipe> recipes = recipes_of(flags);
  const ChosenDevice device = choose_device(flags);
  check_common_flags(flags, device.device);
  const ImageDataset data = load_image_dataset(flags.text("data"));
  RunEnd end = RunEnd::finished;
  for (const Recipe& recipe : recipes) {
    end = train(flags, recipe, data, device);
    if (end == RunEnd::interrupted) {
      break;
    }
  }
  return exit_status(end);
}

}  // namespace
}  // namespace halftone

int main(int argc, char** argv) {
  halftone::Flags flags("train_mlp", "trains a multilayer perceptron on images");
  halftone::add_flags(flags);
  return halftone::run_main(flags, argc, argv, [&] { return halftone::run(flags); });
}
