#include "examples/session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/files.h"
#include "data/known_data.h"
#include "data/sha256.h"
#include "examples/report.h"

namespace halftone {
namespace {

// A misspelt layer in `keep` would go unnoticed: it keeps nothing.
void check_kept_layers(const Recipe& recipe, const std::vector<LinearLayer*>& layers) {
  std::vector<std::string> known{"head"};
  std::string list = "head";
  for (const LinearLayer* layer : layers) {
    known.push_back(layer->path());
    list += concat(", ", layer->path());
  }
  for (const std::string& name : recipe.keep) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw_usage("--precision: keep=", name, " names no layer of this model, which has ", list);
    }
  }
}

}  // namespace

Session::Session(Flags& flags) : flags_(flags) {
  check_common_flags(flags);
  device_ = choose_device(flags);
  check_device_flags(flags, device_.device);
  take_out();
  if (flags.has("resume")) {
    resumed_.emplace(flags.text("resume"));
    const std::string made_by = resumed_->config_text("program");
    if (made_by != flags.program()) {
      throw_file_error(resumed_->path(), "is a run of ", made_by, ", not of ", flags.program());
    }
    flags.take_stored(resumed_->config(), flags.text("resume"));
  }
  recipes_ = recipes_of(flags);
  if (resumed_ && recipes_ != std::vector{resumed_->recipe()}) {
    throw_usage("--loss-scale ",
                flags.text("loss-scale"),
                " contradicts ",
                flags.text("resume"),
                ", which was made with ",
                to_string(resumed_->recipe().loss_scale));
  }
  for (const Recipe& recipe : recipes_) {
    scaler_config(flags, recipe);  // throws: no recipe is trained where a later one is wrong
    how_multiplied(recipe, device_.device, flags.text("gemm"));
  }
}

void Session::take_out() {
  const std::string resume = flags_.has("resume") ? flags_.text("resume") : "";
  out_ = flags_.has("out") ? flags_.text("out") : resume;
  if (out_.empty() || (!resume.empty() && !std::filesystem::exists(resume))) {
    return;  // nothing to hold, or nothing to resume: reading it will say so
  }
  if (std::filesystem::exists(out_) && !std::filesystem::is_regular_file(out_)) {
    throw_file_error(out_, "is not a regular file; --out takes the name of a file");
  }
  lock_.emplace(out_);
  const bool exists = std::filesystem::exists(out_);
  const bool goes_on = exists && !resume.empty() && std::filesystem::equivalent(out_, resume);
  if (exists && !goes_on && !flags_.is_on("overwrite")) {
    throw_file_error(out_, "exists: resume it with --resume, or replace it with --overwrite");
  }
}

std::string Session::data_spec() const {
  if (!resumed_ || flags_.given("data")) {
    return flags_.text("data");
  }
  std::string name = resumed_->config_text("data");
  if (name.empty()) {
    throw_usage("--resume ", flags_.text("resume"), " was made with files: give them with --data");
  }
  return name;
}

JsonObject Session::data_facts(const std::string& spec,
                               std::initializer_list<std::span<const std::byte>> parts) const {
  Sha256 sha;
  for (const auto part : parts) {
    sha.update(part.data(), part.size());
  }
  const std::string fingerprint = to_hex(sha.digest());
  if (resumed_) {
    const std::string stored = resumed_->config_text("data_sha256");
    if (stored != fingerprint) {
      throw_file_error(resumed_->path(),
                       "was trained on other data: SHA-256 ",
                       stored,
                       ", found ",
                       fingerprint,
                       "; give its data with --data");
    }
  }
  const bool has_name = is_known_data(spec) || spec == kSyntheticName;
  JsonObject facts;
  facts.add("data", has_name ? std::string_view(spec) : "")
      .add("data_sha256", std::string_view(fingerprint));
  return facts;
}

int Session::train_all(const std::function<RunEnd(const Recipe&)>& run) {
  RunEnd end = RunEnd::finished;
  for (const Recipe& recipe : recipes_) {
    end = run(recipe);
    if (end == RunEnd::interrupted) {
      break;
    }
  }
  return exit_status(end);
}

LinearContext Session::begin(const Recipe& recipe, const RunPlan& plan) {
  if (resumed_ && plan.steps < resumed_->iteration()) {
    throw_usage("the run would end at step ",
                plan.steps,
                ", and ",
                flags_.text("resume"),
                " is at step ",
                resumed_->iteration(),
                " already; give more --steps");
  }
  state_.reset();  // the run before this one is no part of its peaks
  memory_pool(device_.device).reset_peaks();
  recipe_ = recipe;
  plan_ = plan;
  flags_.set("precision", to_string(recipe));  // with --loss-scale in it, for the checkpoint
  flags_.set("steps", plan.steps);
  if (!flags_.has("eval-every")) {
    flags_.set("eval-every", plan.eval_every);
  }
  if (!flags_.has("print-every")) {
    flags_.set("print-every", plan.print_every);
  }
  print_first_lines(seed(), device_.device, device_.note, recipe, flags_.text("gemm"));
  state_.emplace(StepRules{.scaler = scaler_config(flags_, recipe),
                           .nominal_targets = plan.nominal_targets,
                           .clip_norm = static_cast<float>(flags_.real("clip"))},
                 device_.device);
  return {recipe, state_->random(seed()), flags_.text("gemm"), device_.device};
}

void Session::load_init(Task& task) const {
  const Checkpoint checkpoint(flags_.text("init"));
  checkpoint.load_parameters(task.parameters());
  for (LinearLayer* layer : task.linear_layers()) {
    layer->state().forget_pending();  // the amax of the random weights
    layer->refresh();
  }
}

void Session::open_dump(Task& task, TrainerHooks& hooks) {
  const std::string path = flags_.text("dump-batches");
  if (!dump_.is_open()) {  // one file for all recipes; opening it again would fail
    dump_.open(path, std::ios::trunc);
  }
  if (!dump_) {
    throw_file_error(path, "cannot write: ", std::strerror(errno));
  }
  hooks.batch = [this, path, &task](const MicroBatch& at) {
    std::string rows;
    for (const int64_t row : task.rows(at)) {
      rows += concat(rows.empty() ? "" : ",", row);
    }
    dump_ << "{\"step\":" << at.iteration + 1 << ",\"micro_batch\":" << at.index << ",\"rows\":["
          << rows << "]}" << std::endl;  // flushed, so that a full disk shows
    if (!dump_) {
      throw_file_error(path, "cannot write: ", std::strerror(errno));
    }
  };
}

RunEnd Session::train(Task& task, const JsonObject& facts) {
  Optimizer optimizer(
      optimizer_options(flags_, plan_.steps), task.parameters(), state_->random(seed()));
  RunHistory history;
  Instruments instruments(flags_.integer("histograms"));
  const TrainerOptions options = trainer_options(flags_);
  const RunParts parts{task, optimizer, *state_, history, instruments, recipe_, options.grad_accum};
  if (flags_.has("init")) {
    load_init(task);
  }
  const int64_t resumed_at = resumed_ ? resumed_->iteration() : -1;
  if (resumed_) {
    resumed_->restore(parts);
    resumed_.reset();  // closes the file, which HDF5 locks against other programs while it is open
  }

  for (const Recipe& recipe : recipes_) {  // the later ones too, before the first is trained
    check_kept_layers(recipe, task.linear_layers());
  }
  print_notes(recipe_, task.linear_layers());
  JsonObject config;
  config.add("program", std::string_view(flags_.program())).add_fields(facts);
  flags_.store(config);
  ConsoleReport report({.quiet = flags_.is_on("quiet"),
                        .total_steps = plan_.steps,
                        .print_every = options.print_every,
                        .unit = std::string(task.unit())});
  std::vector<RunObserver*> observers{&history, &report};
  if (flags_.has("log")) {
    if (!log_) {  // not earlier: a run that cannot start leaves the log of another as it is
      log_.emplace(flags_.text("log"), resumed_at);
    }
    JsonObject line = config;
    line.add("recipe_full", std::string_view(to_full_string(recipe_)))
        .add("device", std::string_view(to_string(device_.device)))
        .add("device_note", std::string_view(device_.note))
        .add("parameters", task.parameters().num_elements());
    log_->start(line, task.unit(), !recipe_.master);
    observers.push_back(&*log_);
  }
  TrainerHooks hooks;
  if (!out_.empty()) {
    hooks.save = [this, parts, text = config.text()] {
      save_checkpoint(out_, parts, text);
      return out_;
    };
  }
  if (flags_.has("dump-batches")) {
    open_dump(task, hooks);
  }
  if (flags_.integer("histograms") > 0) {
    hooks.after_step = [&](int64_t iteration) {
      return instruments.take_if_due(iteration, task.parameters(), *state_);
    };
  }
  Trainer trainer(task, optimizer, *state_, options, observers, hooks);
  trainer.recall(history.last(), history.best_loss());
  return trainer.run();
}

}  // namespace halftone
