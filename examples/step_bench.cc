#include "examples/step_bench.h"

#include <algorithm>
#include <stdexcept>

#include "core/check.h"
#include "core/philox.h"
#include "data/synthetic.h"
#include "models/image_task.h"
#include "models/text_task.h"

namespace halftone {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kSteps = 4096;  // of the schedule: more than are ever run
constexpr OptimizerOptions kAdamW{.weight_decay = 0.01,
                                  .schedule = {.lr = 1e-4, .min_lr = 1e-4, .steps = kSteps}};

int64_t targets_of(const StepCase& what) {
  return what.mlp ? what.batch : what.batch * what.gpt->context;
}

TokenDataset random_tokens(int64_t vocab) {
  constexpr size_t kTokens = 100000;
  std::vector<uint32_t> draws(kTokens);
  fill_draws({philox_key(kSeed, "cpu_bench/tokens")}, 0, kTokens, draws.data());
  std::vector<int32_t> tokens(kTokens);
  for (size_t i = 0; i < kTokens; ++i) {
    tokens[i] = static_cast<int32_t>(draws[i] % static_cast<uint32_t>(vocab));
  }
  return split_tokens(std::move(tokens), Vocabulary::ids(vocab), "random tokens");
}

Tensor random_values(int64_t size) {
  std::vector<uint32_t> draws(static_cast<size_t>(size));
  fill_draws({philox_key(kSeed, "cpu_bench/operands")}, 0, draws.size(), draws.data());
  Tensor values = Tensor::empty({size}, DType::f32, {}, MemoryCategory::data);
  std::transform(draws.begin(), draws.end(), values.data<float>(), [](uint32_t draw) {
    return uniform(draw) - 0.5f;
  });
  return values;
}

}  // namespace

std::vector<StepCase> step_cases() {
  return {{.name = "mlp 784-1024-1024-10",
           .batch = 128,
           .mlp = MlpOptions{.inputs = 784, .hidden = {1024, 1024}, .outputs = 10}},
          {.name = "gpt 4x128 T=64",
           .batch = 12,
           .gpt = GptOptions{.context = 64, .layers = 4, .heads = 4, .width = 128}},
          {.name = "gpt 6x384 T=256",
           .batch = 4,
           .gpt = GptOptions{.context = 256, .layers = 6, .heads = 6, .width = 384}}};
}

BenchStep::BenchStep(const StepCase& what, std::string_view recipe_text)
    : state_({.scaler = loss_scaler_config(parse_recipe(recipe_text).loss_scale),
              .nominal_targets = static_cast<double>(targets_of(what)),
              .clip_norm = 1.0f},
             {}) {
  const LinearContext context{parse_recipe(recipe_text), state_.random(kSeed), "", {}};
  const BatchPlan plan{.batch = what.batch, .random = context.random};
  if (what.mlp) {
    images_ = synthetic_digits(10 * what.batch, 10);
    mlp_.emplace(*what.mlp, context);
    task_ = std::make_unique<ImageTask>(*mlp_, images_, plan);
  } else {
    tokens_ = random_tokens(what.gpt->vocab);
    gpt_.emplace(*what.gpt, context);
    task_ = std::make_unique<TextTask>(*gpt_, tokens_, plan);
  }
  optimizer_.emplace(kAdamW, task_->parameters(), state_.random(kSeed));
}

void BenchStep::run() {
  const StepScalars before = state_.read();
  const TrainerOptions one_step{.steps = kSteps, .stop_after = before.iteration + 1};
  const RunEnd end = Trainer(*task_, *optimizer_, state_, one_step, {}, {}).run();
  if (end == RunEnd::interrupted || state_.read().skipped != before.skipped) {
    throw std::runtime_error("a training step was skipped or interrupted: no timing");
  }
}

StepGemms::StepGemms(const StepCase& what) {
  if (what.mlp) {
    std::vector<int64_t> sizes{what.mlp->inputs};
    sizes.insert(sizes.end(), what.mlp->hidden.begin(), what.mlp->hidden.end());
    sizes.push_back(what.mlp->outputs);
    for (size_t i = 0; i + 1 < sizes.size(); ++i) {
      add_linear(what.batch, sizes[i], sizes[i + 1], i > 0);
    }
    return;
  }
  const GptOptions& gpt = *what.gpt;
  const int64_t rows = what.batch * gpt.context;
  const int64_t width = gpt.width;
  for (int64_t layer = 0; layer < gpt.layers; ++layer) {
    add_linear(rows, width, 3 * width, true);
    add_attention(what.batch, gpt.context, gpt.heads, width / gpt.heads);
    add_linear(rows, width, width, true);
    add_linear(rows, width, 4 * width, true);
    add_linear(rows, 4 * width, width, true);
  }
  add_linear(rows, width, (gpt.vocab + 63) / 64 * 64, true);  // the head, vocabulary padded
}

void StepGemms::add_linear(int64_t rows, int64_t in, int64_t out, bool needs_input_gradient) {
  const GemmOperand x{.stride = in};
  const GemmOperand w{.stride = in};
  const GemmOperand dy{.stride = out};
  const auto transposed = [](GemmOperand operand) {
    operand.transposed = true;
    return operand;
  };
  add({.M = rows, .N = out, .K = in, .a = x, .b = transposed(w), .d_stride = out},
      rows * in,
      out * in,
      rows * out);
  if (needs_input_gradient) {
    add({.M = rows, .N = in, .K = out, .a = dy, .b = w, .d_stride = in},
        rows * out,
        out * in,
        rows * in);
  }
  add({.M = out, .N = in, .K = rows, .a = transposed(dy), .b = x, .d_stride = in},
      rows * out,
      rows * in,
      out * in);
}

void StepGemms::add_attention(int64_t batch, int64_t length, int64_t heads, int64_t head_size) {
  const int64_t width = heads * head_size;
  const GemmOperand packed{.stride = 3 * width, .batch_stride = head_size};  // q, k or v
  const GemmOperand output{.stride = width, .batch_stride = head_size};      // y or dy
  const GemmOperand square{.stride = length, .batch_stride = length * length};
  const auto transposed = [](GemmOperand operand) {
    operand.transposed = true;
    return operand;
  };
  const auto size_of = [&](const GemmOperand& operand) {
    return operand.batch_stride == head_size ? length * operand.stride : heads * length * length;
  };
  const auto product = [&](const GemmOperand& a, const GemmOperand& b, const GemmOperand& d) {
    const bool to_square = d.batch_stride != head_size;
    add({.M = length,
         .N = to_square ? length : head_size,
         .K = to_square ? head_size : length,
         .batch = heads,
         .a = a,
         .b = b,
         .d_stride = d.stride,
         .d_batch_stride = d.batch_stride},
        size_of(a),
        size_of(b),
        size_of(d));
  };
  for (int64_t sequence = 0; sequence < batch; ++sequence) {
    product(packed, transposed(packed), square);  // scores = q k^T
    product(square, packed, output);              // y = p v
    product(output, transposed(packed), square);  // dp = dy v^T
    product(square, packed, packed);              // dq = ds k
    product(transposed(square), packed, packed);  // dk = ds^T q
    product(transposed(square), output, packed);  // dv = p^T dy
  }
}

void StepGemms::add(GemmProblem problem, int64_t a_size, int64_t b_size, int64_t d_size) {
  const auto memory = [&](int64_t size) { return memory_.emplace_back(random_values(size)).raw(); };
  problem.a.data = memory(a_size);
  problem.b.data = memory(b_size);
  problem.d = memory(d_size);
  problems_.push_back(problem);
}

void StepGemms::run() const {
  for (const GemmProblem& problem : problems_) {
    gemm(problem, Device{});
  }
}

double StepGemms::flop() const {
  double sum = 0.0;
  for (const GemmProblem& p : problems_) {
    sum += 2.0 * static_cast<double>(p.batch * p.M) * static_cast<double>(p.N * p.K);
  }
  return sum;
}

}  // namespace halftone
