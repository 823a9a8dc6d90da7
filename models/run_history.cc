#include "models/run_history.h"

#include <algorithm>
#include <string>

namespace halftone {
namespace {

constexpr int64_t kChunk = 4096;

template <class T>
void write_field(Hdf5File& file, const char* name, const std::vector<T>& values) {
  const auto n = static_cast<int64_t>(values.size());
  file.write<T>(std::string("/metrics/").append(name), {n}, values, {kChunk});
}

template <class T>
void read_field(const Hdf5File& file, const char* name, std::vector<T>& values) {
  values = file.read<T>(std::string("/metrics/").append(name));
}

}  // namespace

void RunHistory::step(const StepEvent& event) {
  const StepRecord& r = event.record;
  loss_.push_back(r.loss);
  lr_.push_back(event.lr);
  grad_norm_.push_back(r.grad_norm);
  loss_scale_.push_back(r.loss_scale);
  skipped_.push_back(static_cast<uint8_t>(r.skipped));
  targets_.push_back(r.targets);
  lost_updates_.push_back(r.lost_updates);
}

void RunHistory::eval(const EvalEvent& event) {
  eval_step_.push_back(event.step);
  val_loss_.push_back(event.evaluation.loss);
  if (event.evaluation.accuracy) {
    accuracy_.push_back(*event.evaluation.accuracy);
  }
}

void RunHistory::write(Hdf5File& file) const {
  write_field(file, "loss", loss_);
  write_field(file, "lr", lr_);
  write_field(file, "grad_norm", grad_norm_);
  write_field(file, "loss_scale", loss_scale_);
  write_field(file, "skipped", skipped_);
  write_field(file, "targets", targets_);
  write_field(file, "lost_updates", lost_updates_);
  write_field(file, "eval_step", eval_step_);
  write_field(file, "val_loss", val_loss_);
  write_field(file, "accuracy", accuracy_);
}

void RunHistory::read(const Hdf5File& file) {
  read_field(file, "loss", loss_);
  read_field(file, "lr", lr_);
  read_field(file, "grad_norm", grad_norm_);
  read_field(file, "loss_scale", loss_scale_);
  read_field(file, "skipped", skipped_);
  read_field(file, "targets", targets_);
  read_field(file, "lost_updates", lost_updates_);
  read_field(file, "eval_step", eval_step_);
  read_field(file, "val_loss", val_loss_);
  read_field(file, "accuracy", accuracy_);
}

std::optional<Evaluation> RunHistory::last() const {
  if (val_loss_.empty()) {
    return std::nullopt;
  }
  Evaluation evaluation{val_loss_.back(), std::nullopt};
  if (!accuracy_.empty()) {
    evaluation.accuracy = accuracy_.back();
  }
  return evaluation;
}

std::optional<double> RunHistory::best_loss() const {
  if (val_loss_.empty()) {
    return std::nullopt;
  }
  return *std::min_element(val_loss_.begin(), val_loss_.end());
}

}  // namespace halftone
