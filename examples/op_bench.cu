// op_bench: what the memory-bound ops reach of a GPU's memory, beside a device-to-device copy in
// the same process.
//   op_bench [--json] [--only NAME] [--tokens N] [--width N]
// Sizes are GPT-2's unless given, the tensors larger than the L2 cache. An op is counted with the
// fewest bytes it can move: each input read once, each output written once; but twice read where a
// scale of the whole tensor or of whole columns must be known before the first value is rounded. A
// time is the median of five samples of twenty launches in one CUDA graph, as training runs them.
#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "core/cuda/check.cuh"
#include "core/cuda/graph.h"
#include "ops/adamw_step/adamw_step.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_rows.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/finite_norm/finite_norm.h"
#include "ops/gelu/gelu.h"
#include "ops/layernorm/norm.h"
#include "ops/quantize/quantize.h"
#include "ops/reduce/reduce.h"
#include "ops/residual_layernorm/residual_layernorm.h"
#include "ops/softmax/softmax.h"

namespace {

using namespace halftone;

constexpr Device kGpu{DeviceType::cuda, 0};
constexpr int64_t kVocab = 50304;
constexpr int64_t kTokensOfALoss = 16;  // an op on hidden states is timed with so many more tokens
constexpr int64_t kParameters = int64_t{124} << 20;

/// Normal-like values of about unit size, in a pattern that repeats beyond any cache line.
Tensor values(const Shape& shape, DType dtype) {
  const Tensor x = Tensor::empty(shape, dtype, kGpu);
  const int64_t period = std::min<int64_t>(x.numel(), int64_t{1} << 20);
  const Tensor some = Tensor::empty({period}, dtype);
  dispatch_floating(dtype, "op_bench", [&]<class T>() {
    for (int64_t i = 0; i < period; ++i) {
      const RandomStream stream{philox_key(1, "op_bench")};
      const float u = uniform(stream.draw(static_cast<uint64_t>(i)));
      some.data<T>()[i] = narrow<T>(static_cast<ComputeType<T>>(4.0f * u - 2.0f));
    }
  });
  for (int64_t i = 0; i < x.numel(); i += period) {
    const int64_t n = std::min(period, x.numel() - i);
    copy(some.view({n}, {1}, 0), x.view({n}, {1}, i));
  }
  return x;
}

double median_ms(const std::function<void()>& run) {
  constexpr int kSamples = 5;
  constexpr int kLaunches = 20;
  const auto stream = static_cast<cudaStream_t>(cuda::current_stream());
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  HALFTONE_CUDA_CHECK(cudaEventCreate(&begin));
  HALFTONE_CUDA_CHECK(cudaEventCreate(&end));
  run();  // fills the pool
  const cuda::Graph graph([&] {
    for (int i = 0; i < kLaunches; ++i) {
      run();
    }
  });
  std::vector<float> times;
  for (int sample = -1; sample < kSamples; ++sample) {  // the first warms up
    HALFTONE_CUDA_CHECK(cudaEventRecord(begin, stream));
    graph.replay();
    HALFTONE_CUDA_CHECK(cudaEventRecord(end, stream));
    HALFTONE_CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0.0f;
    HALFTONE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (sample >= 0) {
      times.push_back(ms / kLaunches);
    }
  }
  HALFTONE_CUDA_CHECK(cudaEventDestroy(begin));
  HALFTONE_CUDA_CHECK(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + kSamples / 2, times.end());
  return times[kSamples / 2];
}

struct Sizes {
  int64_t tokens = 131072;
  int64_t width = 768;
};

class Bench {
 public:
  Bench(bool json, std::string only) : json_(json), only_(std::move(only)) {
    const Tensor from = values({131072, 768}, DType::f32);
    const Tensor to = empty_like(from);
    const double ms = median_ms([&] { copy(from, to); });
    copy_gb_s_ = 2.0 * static_cast<double>(from.bytes()) / ms * 1e-6;
    print("copy", ms, 2 * from.bytes());
  }

  void row(const std::string& name, int64_t bytes, const std::function<void()>& run) {
    if (only_.empty() || name.starts_with(only_)) {
      print(name, median_ms(run), bytes);
    }
  }

 private:
  void print(const std::string& name, double ms, int64_t bytes) const {
    const double gb_s = static_cast<double>(bytes) / ms * 1e-6;
    std::printf(json_ ? "{\"op\": \"%s\", \"ms\": %.4f, \"gb_s\": %.0f, \"of_copy\": %.3f}\n"
                      : "%-28s %9.4f ms %7.0f GB/s %6.3f of a copy\n",
                name.c_str(),
                ms,
                gb_s,
                gb_s / copy_gb_s_);
    std::fflush(stdout);
  }

  bool json_;
  std::string only_;
  double copy_gb_s_ = 0.0;
};

void bench_elementwise(Bench& bench, const Sizes& sizes, DType dtype) {
  const std::string of = std::string(" ") + std::string(name_of(dtype));
  const Tensor x = values({sizes.tokens, 4 * sizes.width}, dtype);
  const Tensor dy = values({sizes.tokens, 4 * sizes.width}, dtype);
  const Tensor dx = empty_like(x);
  bench.row("gelu" + of, 2 * x.bytes(), [&] { gelu(x); });
  bench.row("gelu backward" + of, 3 * x.bytes(), [&] {
    detail::map_gradient_cuda<detail::GeluSlope>(x, dy, {dx});
  });
  const Tensor counters = to_device(Tensor::from<int64_t>({1, 0}, {2}), kGpu);
  bench.row("dropout" + of, 2 * x.bytes(), [&] {
    dropout(x, {0.1f, {1, counters}, "op_bench"}, true);
  });
  bench.row("sum over rows" + of, x.bytes(), [&] { sum(x, Over::leading); });
}

void bench_norms(Bench& bench, const Sizes& sizes, DType dtype) {
  const std::string of = std::string(" ") + std::string(name_of(dtype));
  const Shape hidden{sizes.tokens, sizes.width};
  const Tensor x = values(hidden, dtype);
  const Tensor branch = values(hidden, dtype);
  const Tensor gamma = values({sizes.width}, dtype);
  const Tensor beta = values({sizes.width}, dtype);
  const Norm norm{"layernorm", true, 1e-5f, gamma, beta, dtype};
  bench.row("layernorm" + of, 2 * x.bytes(), [&] { normalize(norm, x); });
  bench.row("residual_layernorm" + of, 4 * x.bytes(), [&] {
    residual_layernorm(x, branch, gamma, beta);
  });
  const auto statistic = [&] { return values({sizes.tokens}, DType::f32); };
  const NormStatistics statistics{statistic(), statistic()};
  const GradSink dx{empty_like(x)};
  const GradSink dgamma{Tensor::zeros({sizes.width}, DType::f32, kGpu)};
  const GradSink dbeta{Tensor::zeros({sizes.width}, DType::f32, kGpu)};
  bench.row("layernorm backward" + of, 3 * x.bytes(), [&] {
    detail::normalize_backward_cuda(norm, x, statistics, branch, dx, dgamma, dbeta);
  });
}

void bench_losses(Bench& bench, const Sizes& sizes, DType dtype) {
  const std::string of = std::string(" ") + std::string(name_of(dtype));
  const int64_t tokens = std::max<int64_t>(1, sizes.tokens / kTokensOfALoss);
  const Tensor logits = values({tokens, kVocab}, dtype);
  std::vector<int32_t> host(static_cast<size_t>(tokens));
  for (size_t i = 0; i < host.size(); ++i) {
    host[i] = static_cast<int32_t>(i * 31 % kVocab);
  }
  const Tensor targets = to_device(Tensor::from(host, {tokens}), kGpu);
  bench.row("softmax" + of, 2 * logits.bytes(), [&] { softmax(logits); });
  bench.row("cross_entropy" + of, logits.bytes(), [&] { cross_entropy(logits, targets); });
  const auto statistic = [&] { return values({tokens}, DType::f32); };
  const detail::CrossEntropyCall call{logits, targets, kVocab, {}, statistic(), statistic()};
  const Tensor count = to_device(Tensor::from<int32_t>({static_cast<int32_t>(tokens)}, {}), kGpu);
  const Tensor dy = to_device(Tensor::from<float>({1.0f}, {}), kGpu);
  const GradSink dlogits{empty_like(logits)};
  bench.row("cross_entropy backward" + of, 2 * logits.bytes(), [&] {
    detail::cross_entropy_backward_cuda(call, count, dy, dlogits);
  });
}

// The attention of a GPT whose heads are 64 wide, op by op: `batch` sequences of `length` tokens.
// Scores of keys that a query does not see need not be read, but their probabilities are written.
void bench_attention(Bench& bench, int64_t batch, int64_t length, int64_t heads) {
  const std::string of = concat(" bf16 ", batch, "x", heads, "x", length);
  const int64_t rows = batch * heads * length;
  const detail::AttentionRows call{
      .rows = rows, .length = length, .stride = length, .head_size = 64, .causal = true};
  const Tensor scores = values({rows, length}, DType::f32);
  const Tensor p = values({rows, length}, DType::bf16);
  const Tensor ds = empty_like(p);
  const int64_t seen = rows * (length + 1) / 2;
  bench.row("attention rows" + of, 4 * seen + p.bytes(), [&] {
    detail::attention_softmax_cuda(call, scores, p, {});
  });
  bench.row("attention rows backward" + of, (4 + 2) * seen + ds.bytes(), [&] {
    detail::attention_softmax_backward_cuda(call, p, scores, ds, {});
  });
  // Whole: qkv and y, scores written and read, probabilities written and read.
  AttentionOptions options{.heads = heads};
  options.precision.a.format = options.precision.b.format = kBf16;
  const Tensor qkv = values({batch, length, 3 * heads * 64}, DType::bf16);
  const int64_t whole = qkv.bytes() * 4 / 3 + 4 * rows * length + 4 * seen + 2 * p.bytes();
  bench.row("attention" + of, whole, [&] { attention(qkv, options); });
  const Tensor dy = values({batch, length, heads * 64}, DType::bf16);
  const Tensor leaf = Tensor::zeros({}, DType::f32, kGpu).set_requires_grad();
  bench.row("attention both ways" + of,
            whole + qkv.bytes() * 7 / 3 + 4 * rows * length + (4 + 2) * seen + 4 * p.bytes(),
            [&] {
              const WithGrad on;
              Tensor x = qkv.detach();  // an activation, whose gradient is of its dtype
              record({leaf}, x, [](const Tensor&, const GradSink& dx) { fill_zero(dx.buffer); });
              backward(attention(x, options), dy);
            });
}

// The gradient of token embeddings: tokens as frequent as in a text, rows as wide as a model.
void bench_embedding(Bench& bench, int64_t tokens, int64_t vocab, int64_t width) {
  std::vector<int32_t> host(static_cast<size_t>(tokens));
  for (size_t i = 0; i < host.size(); ++i) {
    const float u = uniform(RandomStream{philox_key(1, "op_bench")}.draw(i));
    host[i] = static_cast<int32_t>(u * u * u * static_cast<float>(vocab));
  }
  const Tensor given = to_device(Tensor::from(host, {tokens}), kGpu);
  const Tensor dy = values({tokens, width}, DType::f32);
  const GradSink dtable{Tensor::zeros({vocab, width}, DType::f32, kGpu), true};
  bench.row(concat("embedding backward f32 ", tokens, " of ", vocab),
            dy.bytes() + 2 * std::min(tokens, vocab) * width * 4,
            [&] { detail::table_gradient_cuda(given, dy, dtable); });
}

void bench_optimizer(Bench& bench) {
  StepState state({}, kGpu);
  StepScalars scalars = state.read();
  scalars.apply = 1;
  state.write(scalars);
  const auto buffer = [](DType dtype) { return values({kParameters}, dtype); };
  ParameterBuffers buffers;
  buffers.gradients = buffer(DType::f32);
  buffers.weights = buffer(DType::f32);
  buffers.copies = buffer(DType::bf16);
  buffers.decays = Tensor::zeros({kParameters / kParameterAlignment}, DType::u8, kGpu);
  const Tensor m = Tensor::zeros({kParameters}, DType::f32, kGpu);
  const Tensor v = Tensor::zeros({kParameters}, DType::f32, kGpu);
  const Tensor schedule = to_device(Tensor::from<float>({1e-3f, 1.0f, 1.0f}, {1, 3}), kGpu);
  bench.row("finite_norm", 4 * kParameters, [&] { finite_norm(buffers.gradients, state); });
  // Gradient, weight and two moments read; weight, moments and copy written.
  bench.row("adamw_step", (4 * 7 + 2) * kParameters, [&] {
    adamw_step(buffers, m, v, schedule, {}, state);
  });
}

void bench_quantize(Bench& bench, const Sizes& sizes, DType dtype) {
  const Tensor x = values({sizes.tokens, sizes.width}, dtype);
  for (const char* recipe : {"fp8-tensor", "fp8-row", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
    const OperandPrecision p = resolve_linear(parse_recipe(recipe), "layer", false).forward.a;
    for (const int k_axis : {1, 0}) {
      const bool whole = p.scaling == Scaling::tensor || p.scaling == Scaling::nvfp4 ||
                         (p.scaling == Scaling::row && k_axis == 0);
      const QuantizedMatrix q = quantize(x, k_axis, p);
      bench.row(concat("quantize ", recipe, " along ", k_axis, " ", dtype),
                (whole ? 2 : 1) * x.bytes() + q.values.bytes() + q.scales.bytes(),
                [&] { quantize(x, k_axis, p); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    cxxopts::Options options("op_bench", "Memory-bound ops beside a device-to-device copy");
    options.add_options()("json", "one JSON object a line")(
        "only", "ops whose name starts so", cxxopts::value<std::string>()->default_value(""))(
        "tokens", "rows of hidden states", cxxopts::value<int64_t>()->default_value("131072"))(
        "width", "columns of hidden states", cxxopts::value<int64_t>()->default_value("768"))(
        "help", "this text");
    const auto given = options.parse(argc, argv);
    if (given.count("help") > 0) {
      std::cout << options.help();
      return 0;
    }
    const NoGrad off;
    Bench bench(given.count("json") > 0, given["only"].as<std::string>());
    const Sizes sizes{given["tokens"].as<int64_t>(), given["width"].as<int64_t>()};
    for (const DType dtype : {DType::bf16, DType::f32}) {
      bench_elementwise(bench, sizes, dtype);
      bench_norms(bench, sizes, dtype);
      bench_losses(bench, sizes, dtype);
      bench_quantize(bench, sizes, dtype);
    }
    bench_attention(bench, 64, 256, 6);
    bench_attention(bench, 8, 1024, 12);
    bench_embedding(bench, 16384, 65, 384);
    bench_embedding(bench, sizes.tokens, kVocab, sizes.width);
    bench_optimizer(bench);
  } catch (const std::exception& error) {
    std::cerr << "op_bench: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
