#include "ops/step_state/step_state.h"

#include <cstddef>

#include "core/check.h"
#include "ops/step_state/transitions.h"

namespace halftone {
namespace {

// Without padding, whose bytes nothing would define.
static_assert(sizeof(StepScalars) == 8 * sizeof(int64_t) + sizeof(LossScalerState) + 6 * 4);
static_assert(sizeof(StepRecord) == 5 * sizeof(int64_t) + 6 * 4);
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

namespace {

template <class Transition>
void run(StepState& state, const Transition& transition) {
  if (state.memory().is_cpu()) {
    transition(state.rules(), state.scalars());
  } else if constexpr (kHasCuda) {
    detail::transition_cuda(state, transition);
  }
}

}  // namespace

void begin_step(StepState& state) {
  run(state, detail::BeginStep{state.target_weight().data<float>()});
}
void begin_micro_batch(StepState& state, int64_t micro_batch) {
  run(state, detail::BeginMicroBatch{micro_batch});
}
void add_loss(StepState& state, const Tensor& loss_sum, const Tensor& targets) {
  run(state, detail::loss_to_add(loss_sum, targets));
}

}  // namespace halftone
