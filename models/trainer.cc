#include "models/trainer.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/autograd.h"
#include "core/check.h"
#include "core/cuda/memory.h"
#include "models/interrupt.h"

namespace halftone {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How often this process has waited for a GPU.
int64_t waits() {
  if constexpr (kHasCuda) {
    return cuda::synchronize_count();
  }
  return 0;
}

bool is_due(int64_t iteration, int64_t every) { return every > 0 && iteration % every == 0; }

}  // namespace

Trainer::Trainer(Task& task,
                 Optimizer& optimizer,
                 StepState& state,
                 const TrainerOptions& options,
                 std::vector<RunObserver*> observers,
                 TrainerHooks hooks)
    : task_(task),
      optimizer_(optimizer),
      state_(state),
      options_(options),
      observers_(std::move(observers)),
      hooks_(std::move(hooks)) {
  HALFTONE_CHECK(options.steps >= 0 && options.grad_accum >= 1,
                 "trainer: ",
                 options.steps,
                 " steps of ",
                 options.grad_accum,
                 " micro-batches, expected at least 0 and 1");
  options_.print_every = std::clamp<int64_t>(options.print_every, 1, StepState::kRecords);
  const StepScalars scalars = state.read();
  iteration_ = told_ = scalars.iteration;
  skipped_ = scalars.skipped;
}

MicroBatch Trainer::micro_batch(int64_t index) const {
  return {iteration_, index, iteration_ * options_.grad_accum + index};
}

void Trainer::launch_step() {
  const StepScope scope;
  task_.parameters().begin_gradients();
  CrossEntropy loss;
  for (int64_t k = 0; k < options_.grad_accum; ++k) {
    if (k > 0) {
      add_loss(state_, loss.sum, loss.count);
      begin_micro_batch(state_, k);
    }
    loss = task_.training_loss(micro_batch(k), state_.target_weight());
    backward(loss.loss, state_.one());
  }
  task_.parameters().finish_gradients();
  optimizer_.step(state_, loss.sum, loss.count);
  // Histories first: what the next step's weights are scaled by includes this step's.
  for (LinearLayer* layer : task_.linear_layers()) {
    layer->state().end_step();
    layer->refresh();
  }
}

void Trainer::step() {
  const int64_t waited = waits();
  int64_t least_units = std::numeric_limits<int64_t>::max();
  for (int64_t k = 0; k < options_.grad_accum; ++k) {
    const MicroBatch at = micro_batch(k);
    task_.prepare(at);
    if (hooks_.batch) {
      hooks_.batch(at);
    }
    const int64_t units = task_.units(at);
    untold_units_ += units;
    least_units = std::min(least_units, units);
    if (units > usual_units_) {
      usual_units_ = units;
      is_warm_ = false;
      graph_.reset();
    }
  }
  const Device& device = state_.memory().device();
  const bool is_usual = least_units == usual_units_;
  if (options_.graph && is_usual && is_warm_ && device.is_cuda()) {
    if constexpr (kHasCuda) {
      if (!graph_) {
        graph_.emplace([this] { launch_step(); });
      }
      graph_->replay();
    }
  } else {
    launch_step();
    is_warm_ = is_warm_ || is_usual;
  }
  sync_calls_ += waits() - waited;
  ++iteration_;
  if (hooks_.after_step && hooks_.after_step(iteration_)) {
    ++sync_calls_;
  }
}

void Trainer::catch_up() {
  if (told_ == iteration_) {
    return;
  }
  const std::vector<StepRecord> records = state_.read_records(told_, iteration_);
  ++sync_calls_;
  // Not earlier: a GPU had only been told of these steps.
  const double seconds = now_seconds() - untold_since_;
  const double rate = seconds > 0.0 ? static_cast<double>(untold_units_) / seconds : 0.0;
  for (const StepRecord& record : records) {
    skipped_ += record.skipped;
    const StepEvent event{record,
                          learning_rate(optimizer_.options().schedule, record.update),
                          rate,
                          seconds / static_cast<double>(records.size()),
                          skipped_};
    for (RunObserver* observer : observers_) {
      observer->step(event);
    }
    if (record.has_failed != 0) {
      for (RunObserver* observer : observers_) {
        observer->caught_up();
      }
      fail(record);
    }
  }
  for (RunObserver* observer : observers_) {
    observer->caught_up();
  }
  told_ = iteration_;
  all_units_ += untold_units_;
  step_seconds_ += seconds;
  untold_units_ = 0;
}

void Trainer::fail(const StepRecord& record) const {
  const bool is_dynamic = state_.rules().scaler.dynamic;
  throw TrainingFailed(
      concat("training failed at iteration ",
             record.iteration,
             ": the gradients were not finite for ",
             state_.rules().scaler.patience,
             " steps in a row ",
             is_dynamic ? "at the smallest loss scale, " : "with a fixed loss scale, ",
             record.loss_scale,
             "; the first non-finite tensor is the gradient of '",
             task_.parameters().at_offset(record.first_non_finite).path,
             "'. Lower --lr, clip with --clip, or choose a recipe with more range."));
}

void Trainer::evaluate() {
  const EvalEvent event{iteration_, task_.evaluate()};
  ++sync_calls_;
  summary_.last = event.evaluation;
  summary_.best_loss = summary_.best_loss ? std::min(*summary_.best_loss, event.evaluation.loss)
                                          : event.evaluation.loss;
  for (RunObserver* observer : observers_) {
    observer->eval(event);
  }
}

void Trainer::save_checkpoint() {
  if (!hooks_.save || saved_at_ == iteration_) {
    return;
  }
  const std::string path = hooks_.save();
  ++sync_calls_;
  for (RunObserver* observer : observers_) {
    observer->checkpoint(iteration_, path);
  }
  saved_at_ = iteration_;
}

void Trainer::summarise() {
  summary_.steps = iteration_;
  summary_.total_steps = options_.steps;
  summary_.seconds = run_seconds_;
  summary_.units_per_second =
      step_seconds_ > 0.0 ? static_cast<double>(all_units_) / step_seconds_ : 0.0;
  summary_.skipped = skipped_;
  summary_.sync_calls = sync_calls_;
  summary_.memory = memory_pool(state_.memory().device()).stats();
  for (RunObserver* observer : observers_) {
    observer->summary(summary_);
  }
}

RunEnd Trainer::run() {
  const InterruptGuard interrupt;
  const double start = now_seconds();
  RunEnd end = RunEnd::finished;
  begin_step(state_);
  while (iteration_ < options_.steps && !interrupt.requested()) {
    if (options_.stop_after >= 0 && iteration_ >= options_.stop_after) {
      end = RunEnd::stopped;
      break;
    }
    if (told_ == iteration_) {
      untold_since_ = now_seconds();
    }
    step();
    const bool is_last = iteration_ >= options_.steps;
    const bool wants_eval = is_due(iteration_, options_.eval_every) || is_last;
    const bool wants_checkpoint = is_due(iteration_, options_.checkpoint_every);
    if (wants_eval || wants_checkpoint || is_due(iteration_, options_.print_every)) {
      catch_up();
    }
    if (wants_eval) {
      evaluate();
    }
    if (wants_checkpoint) {
      save_checkpoint();
    }
  }
  catch_up();
  save_checkpoint();
  run_seconds_ = now_seconds() - start;
  summarise();
  // Asked for during the last step too: there may be another run behind this one.
  return interrupt.requested() ? RunEnd::interrupted : end;
}

}  // namespace halftone
