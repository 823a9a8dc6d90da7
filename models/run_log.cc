#include "models/run_log.h"

#include <cerrno>
#include <cstring>

#include "data/files.h"

namespace halftone {
namespace {

// The integer behind "step": in a line this file wrote, or -1. Our own lines are flat but for the
// start line, so no full parser is needed.
int64_t step_of(std::string_view line) {
  constexpr std::string_view kKey = "\"step\":";
  const size_t at = line.find(kKey);
  if (at == std::string_view::npos) {
    return -1;
  }
  return std::atoll(std::string(line.substr(at + kKey.size(), 20)).c_str());
}

bool is_event(std::string_view line, std::string_view event) {
  return line.starts_with(concat("{\"event\":\"", event, "\""));
}

}  // namespace

std::string keep_log_until(std::string_view log, int64_t iteration) {
  std::string kept;
  while (true) {
    const size_t end = log.find('\n');
    if (end == std::string_view::npos) {
      return kept;
    }
    const std::string_view line = log.substr(0, end + 1);
    log.remove_prefix(end + 1);
    const bool is_timed = is_event(line, "step") || is_event(line, "eval");
    if (is_event(line, "start") || (is_timed && step_of(line) <= iteration)) {
      kept += line;
    }
  }
}

RunLog::RunLog(const std::filesystem::path& path, int64_t resumed_at) : path_(path) {
  std::error_code ignored;  // opening it will say what is wrong
  const bool goes_on = resumed_at >= 0 && std::filesystem::is_regular_file(path, ignored);
  if (goes_on) {
    const std::vector<uint8_t> bytes = read_file(path);
    const std::string log(bytes.begin(), bytes.end());
    if (!log.empty() && !is_event(log, "start")) {
      throw_file_error(path, "is not the log of a run; --log needs another name");
    }
    const std::string kept = keep_log_until(log, resumed_at);
    replace_file(path, {reinterpret_cast<const uint8_t*>(kept.data()), kept.size()});
  }
  out_.open(path, std::ios::binary | (goes_on ? std::ios::app : std::ios::trunc));
  caught_up();
}

void RunLog::write(const JsonObject& line) { out_ << line.text() << '\n'; }

void RunLog::start(const JsonObject& config, std::string_view unit, bool has_lost_updates) {
  rate_name_ = concat(unit, "_per_s");
  has_lost_updates_ = has_lost_updates;
  JsonObject line;
  line.add("event", "start").add_fields(config);
  write(line);
  caught_up();
}

void RunLog::step(const StepEvent& event) {
  const StepRecord& r = event.record;
  JsonObject line;
  line.add("event", "step")
      .add("step", r.iteration)
      .add("loss", r.loss)
      .add("lr", event.lr)
      .add("grad_norm", r.grad_norm)
      .add("loss_scale", r.loss_scale)
      .add("skipped", r.skipped != 0)
      .add("targets", r.targets);
  if (has_lost_updates_) {
    line.add("lost_updates", r.lost_updates);
  }
  write(line.add(rate_name_, event.units_per_second));
}

void RunLog::eval(const EvalEvent& event) {
  JsonObject line;
  line.add("event", "eval").add("step", event.step).add("val_loss", event.evaluation.loss);
  if (event.evaluation.accuracy) {
    line.add("accuracy", *event.evaluation.accuracy);
  }
  write(line);
}

void RunLog::caught_up() {
  out_.flush();
  if (!out_) {
    throw_file_error(path_, "cannot write the log: ", std::strerror(errno));
  }
}

void RunLog::summary(const RunSummary& summary) {
  JsonObject line;
  line.add("event", "summary").add("steps", summary.steps);
  if (summary.last) {
    line.add("val_loss", summary.last->loss).add("best_val_loss", *summary.best_loss);
    if (summary.last->accuracy) {
      line.add("accuracy", *summary.last->accuracy);
    }
  }
  line.add("seconds", summary.seconds).add(rate_name_, summary.units_per_second);
  JsonObject peaks;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    peaks.add(name_of(category), summary.memory.by_category[static_cast<size_t>(i)].peak_bytes);
  }
  peaks.add("total", summary.memory.total.peak_bytes);
  line.add("peak_bytes", peaks).add("skipped", summary.skipped);
  write(line.add("sync_calls", summary.sync_calls));
  caught_up();
}

}  // namespace halftone
