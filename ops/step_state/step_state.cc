#include "ops/step_state/step_state.h"

#include <algorithm>
#include <cstddef>

#include "core/check.h"

namespace halftone {
namespace {

static_assert(sizeof(StepScalars) % sizeof(int64_t) == 0);
static_assert(sizeof(StepRecord) % sizeof(int64_t) == 0);
static_assert(offsetof(StepScalars, iteration) == 0);
static_assert(offsetof(StepScalars, micro_batch) == sizeof(int64_t));

constexpr int64_t kWords = sizeof(StepScalars) / sizeof(int64_t);
constexpr int64_t kRecordWords = sizeof(StepRecord) / sizeof(int64_t);

}  // namespace

StepState::StepState(const StepRules& rules, Device device) : rules_(rules) {
  constexpr MemoryCategory kCategory = MemoryCategory::moments;  // optimizer state
  memory_ = Tensor::zeros({kWords}, DType::i64, device, kCategory);
  records_ = Tensor::zeros({kRecords, kRecordWords}, DType::i64, device, kCategory);
  target_weight_ = Tensor::zeros(Shape(), DType::f32, device, kCategory);
  one_ = Tensor::zeros(Shape(), DType::f32, device, kCategory);
  copy(Tensor::from<float>({1.0f}, Shape()), one_);
  check_loss_scaler(rules.scaler);
  StepScalars start;
  start.scaler.scale = rules.scaler.init;
  write(start);
}

StepScalars& StepState::scalars() const { return *static_cast<StepScalars*>(memory_.raw()); }
StepRecord* StepState::records() const { return static_cast<StepRecord*>(records_.raw()); }

RandomSource StepState::random(uint64_t seed) const { return {seed, memory_.view({2}, {1}, 0)}; }

StepScalars StepState::read() const {
  return *static_cast<const StepScalars*>(to_device(memory_, Device{}).raw());
}

void StepState::write(const StepScalars& scalars) {
  const Tensor host = Tensor::empty({kWords}, DType::i64);
  *static_cast<StepScalars*>(host.raw()) = scalars;
  copy(host, memory_);
}

std::vector<StepRecord> StepState::read_records(int64_t after, int64_t until) const {
  HALFTONE_CHECK(until - after <= kRecords,
                 "StepState: asked for ",
                 until - after,
                 " records, of which the last ",
                 kRecords,
                 " are kept");
  const Tensor host = to_device(records_, Device{});
  const auto* ring = static_cast<const StepRecord*>(host.raw());
  std::vector<StepRecord> records;
  for (int64_t iteration = after + 1; iteration <= until; ++iteration) {
    records.push_back(ring[iteration % kRecords]);
  }
  return records;
}

void begin_step(StepState& state) {
  if (!state.memory().is_cpu()) {
    throw_not_on_gpu("begin_step");
  }
  StepScalars& s = state.scalars();
  const StepRules& rules = state.rules();
  s.targets = 0;
  s.loss_sum = 0.0f;
  s.lost_updates = 0;
  s.apply = 0;
  s.used_scale = s.scaler.scale;
  state.target_weight().data<float>()[0] = static_cast<float>(
      double{s.scaler.scale} * double{rules.loss_factor} / rules.nominal_targets);
}

void begin_micro_batch(StepState& state, int64_t micro_batch) {
  if (!state.memory().is_cpu()) {
    throw_not_on_gpu("begin_micro_batch");
  }
  state.scalars().micro_batch = micro_batch;
}

void add_loss(StepState& state, const Tensor& loss_sum, const Tensor& targets) {
  if (!state.memory().is_cpu()) {
    throw_not_on_gpu("add_loss");
  }
  StepScalars& s = state.scalars();
  const StepRules& rules = state.rules();
  s.loss_sum += loss_sum.data<float>()[0];
  s.targets += targets.data<int32_t>()[0];
  // In double and rounded once: where the targets are the nominal ones it is exactly 1 / scale.
  const double targets_so_far = static_cast<double>(std::max<int64_t>(s.targets, 1));
  s.unscale = static_cast<float>(rules.nominal_targets / targets_so_far / double{s.scaler.scale} /
                                 double{rules.loss_factor});
}

void decide_step(StepState& state) {
  if (!state.memory().is_cpu()) {
    throw_not_on_gpu("decide_step");
  }
  StepScalars& s = state.scalars();
  const StepRules& rules = state.rules();
  const float norm = s.grad_norm;
  s.clip_factor = rules.clip_norm > 0.0f && norm > rules.clip_norm ? rules.clip_norm / norm : 1.0f;
  if (s.targets == 0) {
    s.apply = 0;  // nothing was learnt and nothing was measured: the scaler is left alone
    return;
  }
  const bool finite = s.first_non_finite < 0;
  s.scaler = advance(rules.scaler, s.scaler, finite);
  s.apply = finite ? 1 : 0;
}

void end_step(StepState& state) {
  if (!state.memory().is_cpu()) {
    throw_not_on_gpu("end_step");
  }
  StepScalars& s = state.scalars();
  ++s.iteration;
  s.micro_batch = 0;
  StepRecord& record = state.records()[s.iteration % StepState::kRecords];
  record.iteration = s.iteration;
  record.update = s.update;
  record.targets = s.targets;
  record.lost_updates = s.lost_updates;
  record.first_non_finite = s.first_non_finite;
  record.has_failed = has_failed(state.rules().scaler, s.scaler) ? 1 : 0;
  record.skipped = s.apply == 0 ? 1 : 0;
  record.loss = s.targets > 0 ? s.loss_sum / static_cast<float>(s.targets) : 0.0f;
  record.grad_norm = s.grad_norm;
  record.loss_scale = s.used_scale;
  record.next_loss_scale = s.scaler.scale;
  s.update += s.apply;
  s.skipped += 1 - s.apply;
}

}  // namespace halftone
