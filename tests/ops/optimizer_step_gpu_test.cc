// A training step's scalars, norm, decision and update on a GPU: the CPU's bits, step after step,
// with overflows, clipping and a growing loss scale among them.
#include <gtest/gtest.h>

#include <limits>

#include "ops/adamw_step/adamw_step.h"
#include "ops/sgd_step/sgd_step.h"
#include "tests/support/bits.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"
#include "tests/support/step.h"

namespace halftone {
namespace {

using testing::kGpu;
using testing::same_bits;

struct StorageCase {
  const char* name;
  DType weights;
  DType copies;  // f32: none
  Rounding rounding;
};

constexpr StorageCase kStorageCases[] = {
    {"fp32", DType::f32, DType::f32, Rounding::nearest},
    {"bf16", DType::f32, DType::bf16, Rounding::nearest},
    {"fp16", DType::f32, DType::f16, Rounding::nearest},
    {"pure", DType::bf16, DType::f32, Rounding::nearest},
    {"pure16", DType::f16, DType::f32, Rounding::nearest},
    {"stochastic", DType::bf16, DType::f32, Rounding::stochastic}};

std::vector<uint8_t> bytes_of(const Tensor& x) {
  const Tensor host = to_device(x, Device{});
  const auto* first = static_cast<const uint8_t*>(host.raw());
  return {first, first + host.bytes()};
}

// The scalars without the padding between them.
std::vector<uint8_t> bytes_of(const StepScalars& s) {
  const double values[] = {static_cast<double>(s.iteration),
                           static_cast<double>(s.micro_batch),
                           static_cast<double>(s.update),
                           static_cast<double>(s.skipped),
                           static_cast<double>(s.targets),
                           static_cast<double>(s.first_non_finite),
                           static_cast<double>(s.lost_updates),
                           static_cast<double>(s.apply),
                           s.scaler.scale,
                           static_cast<double>(s.scaler.growth),
                           static_cast<double>(s.scaler.skips_in_row),
                           static_cast<double>(s.scaler.stuck_in_row),
                           s.loss_sum,
                           s.unscale,
                           s.grad_norm,
                           s.clip_factor,
                           s.used_scale};
  const auto* first = reinterpret_cast<const uint8_t*>(values);
  return {first, first + sizeof(values)};
}

// Every byte that five steps leave behind: scalars, records, weights, copies and moments.
std::vector<std::vector<uint8_t>> run(const StorageCase& storage,
                                      bool adamw,
                                      int64_t n,
                                      Device device) {
  StepRules rules;
  rules.scaler.init = 1024.0f;
  rules.scaler.growth_interval = 2;
  rules.nominal_targets = 100.0;
  rules.clip_norm = 0.5f;
  StepState state(rules, device);
  const auto on_device = [&](const Shape& shape, uint32_t seed, double scale, DType dtype) {
    return to_device(testing::as_dtype(testing::random_tensor(shape, seed, scale), dtype), device);
  };
  ParameterBuffers buffers;
  buffers.gradients = Tensor::zeros({n}, DType::f32, device);
  buffers.weights = on_device({n}, 1, 0.02, storage.weights);
  if (storage.copies != DType::f32) {
    buffers.copies = Tensor::zeros({n}, storage.copies, device);
  }
  std::vector<uint8_t> decays(static_cast<size_t>(n / kParameterAlignment));
  for (size_t i = 0; i < decays.size(); ++i) {
    decays[i] = i % 3 != 0;
  }
  buffers.decays = to_device(Tensor::from(decays, {static_cast<int64_t>(decays.size())}), device);
  buffers.rounding = storage.rounding;
  buffers.random = state.random(42);
  const Tensor m = Tensor::zeros({n}, DType::f32, device);
  const Tensor v = Tensor::zeros({n}, DType::f32, device);
  const Tensor schedule = to_device(
      Tensor::from<float>({1e-3f, 10.0f, 31.6f, 2e-3f, 5.3f, 22.4f, 1e-3f, 3.7f, 18.3f}, {3, 3}),
      device);

  begin_step(state);
  for (uint32_t step = 0; step < 5; ++step) {
    Tensor gradients = testing::as_dtype(testing::random_tensor({n}, 10 + step, 900.0), DType::f32);
    if (step == 2) {  // an overflow, which the step skips
      gradients.data<float>()[n - 3] = std::numeric_limits<float>::infinity();
      gradients.data<float>()[n / 2] = std::numeric_limits<float>::quiet_NaN();
    }
    copy(to_device(gradients, device), buffers.gradients);
    const Tensor loss =
        to_device(Tensor::from<float>({170.3f + static_cast<float>(step)}, {}), device);
    const Tensor targets = to_device(Tensor::from<int32_t>({step == 3 ? 0 : 47}, {}), device);
    add_loss(state, loss, targets);
    begin_micro_batch(state, 1);
    if (step % 2 == 0) {
      add_loss(state, loss, targets);
      decide_step(buffers.gradients, state);
    } else {
      decide_step(buffers.gradients, state, loss, targets);
    }
    if (adamw) {
      adamw_step(buffers, m, v, schedule, {}, state);
    } else {
      sgd_step(buffers, m, schedule, {.momentum = 0.9f, .weight_decay = 0.1f}, state);
    }
  }
  std::vector<std::vector<uint8_t>> left{bytes_of(state.read()),
                                         bytes_of(state.target_weight()),
                                         bytes_of(buffers.weights),
                                         bytes_of(m),
                                         bytes_of(v)};
  if (buffers.copies.defined()) {
    left.push_back(bytes_of(buffers.copies));
  }
  const std::vector<StepRecord> records = state.read_records(0, 5);
  const auto* first = reinterpret_cast<const uint8_t*>(records.data());
  left.emplace_back(first, first + records.size() * sizeof(StepRecord));
  return left;
}

void expect_same_steps(const StorageCase& storage, bool adamw, int64_t n) {
  SCOPED_TRACE(concat(storage.name, adamw ? " AdamW, " : " SGD, ", n, " weights"));
  const auto expected = run(storage, adamw, n, Device{});
  const auto actual = run(storage, adamw, n, kGpu);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(same_bits(actual[i], expected[i])) << "result " << i;
  }
}

TEST(OptimizerStep, OnAGpuGivesTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const StorageCase& storage : kStorageCases) {
    for (const bool adamw : {false, true}) {
      for (const int64_t n : {64, 4032, 4160, 100032, 1200000}) {
        expect_same_steps(storage, adamw, n);
      }
    }
  }
}

TEST(SanitizeOptimizer, OneSize) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const StorageCase& storage : kStorageCases) {
    for (const bool adamw : {false, true}) {
      expect_same_steps(storage, adamw, 4160);
    }
  }
}

}  // namespace
}  // namespace halftone
