// How fast the CPU side is, as ratios measured in one run: our GEMM beside Eigen's own threaded
// product, narrower formats beside FP32, the Tensor Core's arithmetic in GFLOP/s. Both sides of a
// row take turns; times are medians.
//
//   cpu_bench [--threads N] [--only gemm|mlp|gpt] [--cpu-time] [--json]
//
// Training steps stand beside their own products in FP32, narrow ones beside the FP32 step.
#include <unistd.h>

#include <cxxopts.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

// The peer is compiled with OpenMP, the library's own Eigen without: under another name the linker
// can't mix them up.
#define Eigen EigenPeer
#include <Eigen/Core>
#undef Eigen

#include "core/check.h"
#include "core/parallel.h"
#include "examples/step_bench.h"
#include "models/json.h"
#include "ops/gemm/gemm.h"

namespace halftone {
namespace {

struct Shape {
  int64_t M, N, K;
};

/// Operands of one product in a format, with the scales of fp8-block where asked: A [M, K], B [N,
/// K] as a linear layer has them.
class Product {
 public:
  Product(const Shape& shape, const Format& format, Accumulator acc, bool block_scaled)
      : shape_(shape), d_(shape.M * shape.N) {
    std::mt19937 rng(1);
    a_ = operand(shape.M * shape.K, format, rng);
    b_ = operand(shape.N * shape.K, format, rng);
    const int64_t blocks = (shape.K + 127) / 128;
    scales_.assign(shape.M * blocks + shape.N * blocks, 1.25f);
    problem_.M = shape.M;
    problem_.N = shape.N;
    problem_.K = shape.K;
    problem_.a = {.data = a_.data(), .format = format, .stride = shape.K};
    problem_.b = {.data = b_.data(), .format = format, .transposed = true, .stride = shape.K};
    if (block_scaled) {
      problem_.a.scales = {.data = scales_.data(),
                           .block_mn = 1,
                           .block_k = 128,
                           .stride_mn = blocks,
                           .stride_k = 1};
      problem_.b.scales = {.data = scales_.data(),
                           .block_mn = 128,
                           .block_k = 128,
                           .stride_mn = blocks,
                           .stride_k = 1};
    }
    problem_.d = d_.data();
    problem_.d_stride = shape.N;
    problem_.acc = acc;
  }
  Product(const Product&) = delete;

  void run() const { gemm(problem_, Device{}); }

  /// The same product of FP32 operands by Eigen, in its own threads.
  void run_peer() {
    using RowMajor =
        EigenPeer::Matrix<float, EigenPeer::Dynamic, EigenPeer::Dynamic, EigenPeer::RowMajor>;
    const EigenPeer::Map<const RowMajor> a(
        reinterpret_cast<const float*>(a_.data()), shape_.M, shape_.K);
    const EigenPeer::Map<const RowMajor> b(
        reinterpret_cast<const float*>(b_.data()), shape_.N, shape_.K);
    EigenPeer::Map<RowMajor> d(d_.data(), shape_.M, shape_.N);
    d.noalias() = a * b.transpose();
  }

 private:
  static std::vector<uint8_t> operand(int64_t size, const Format& format, std::mt19937& rng) {
    const size_t bytes = format.bits() > 16 ? 4 : format.bits() > 8 ? 2 : 1;
    std::vector<uint8_t> data(size * bytes);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size; ++i) {
      const float value = normal(rng);
      const uint32_t code = bytes == 4 ? std::bit_cast<uint32_t>(value) : encode(format, value);
      std::memcpy(data.data() + i * bytes, &code, bytes);
    }
    return data;
  }

  Shape shape_;
  std::vector<uint8_t> a_, b_;
  std::vector<float> scales_, d_;
  GemmProblem problem_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// What times are: wall clock, or with --cpu-time the CPU time of this process, which other load on
/// the machine changes less (a ratio then speaks of all threads' work together).
clockid_t timing_clock = CLOCK_MONOTONIC;

double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(timing_clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

/// The median seconds of each contender: all in turn, for at least `rounds` rounds and 0.6 seconds
/// after one round to warm up.
std::vector<double> measure(const std::vector<std::function<void()>>& contenders, size_t rounds) {
  double total = 0;
  std::vector<std::vector<double>> times(contenders.size());
  for (const std::function<void()>& work : contenders) {
    work();
  }
  while (times[0].size() < rounds || total < 0.6) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      times[i].push_back(seconds(contenders[i]));
      total += times[i].back();
    }
  }
  std::vector<double> medians;
  std::transform(times.begin(), times.end(), std::back_inserter(medians), median);
  return medians;
}

struct Times {
  double ours, peer;  // seconds
};

Times measure(const std::function<void()>& ours, const std::function<void()>& peer) {
  const std::vector<double> times = measure({ours, peer}, 15);
  return {times[0], times[1]};
}

class GemmReport {
 public:
  explicit GemmReport(bool json) : json_(json) {
    if (!json) {
      std::printf("%-18s %-16s %9s   %-16s %9s %8s\n",
                  "product",
                  "M x N x K",
                  "GFLOP/s",
                  "beside",
                  "GFLOP/s",
                  "ratio");
    }
  }

  /// ratio: our speed over the peer's.
  void row(const std::string& name,
           const Shape& s,
           const std::string& peer,
           const Times& times) const {
    const double flop =
        2.0 * static_cast<double>(s.M) * static_cast<double>(s.N) * static_cast<double>(s.K);
    const double ours = flop / times.ours * 1e-9;
    const double theirs = flop / times.peer * 1e-9;
    if (json_) {
      std::printf(
          "{\"bench\":\"gemm\",\"name\":\"%s\",\"M\":%ld,\"N\":%ld,\"K\":%ld,\"threads\":%d,"
          "\"gflops\":%.2f,"
          "\"peer\":\"%s\",\"peer_gflops\":%.2f,\"ratio\":%.3f}\n",
          name.c_str(),
          static_cast<long>(s.M),
          static_cast<long>(s.N),
          static_cast<long>(s.K),
          num_threads(),
          ours,
          peer.c_str(),
          theirs,
          ours / theirs);
    } else {
      const std::string shape = concat(s.M, 'x', s.N, 'x', s.K);
      std::printf("%-18s %-16s %9.1f   %-16s %9.1f %8.3f\n",
                  name.c_str(),
                  shape.c_str(),
                  ours,
                  peer.c_str(),
                  theirs,
                  ours / theirs);
    }
    std::fflush(stdout);
  }

 private:
  bool json_;
};

void bench_gemm(const GemmReport& report) {
  // The square of the bar; the layers of an MLP 784-1024-1024-10 at batch 128: forward, then weight
  // gradients.
  const Shape shapes[] = {
      {1024, 1024, 1024}, {128, 1024, 784}, {128, 1024, 1024}, {128, 10, 1024}, {1024, 784, 128}};
  for (const Shape& s : shapes) {
    Product fp32(s, kFp32, Accumulator::fp32, false);
    report.row(
        "fp32", s, "eigen, threaded", measure([&] { fp32.run(); }, [&] { fp32.run_peer(); }));
    const auto beside_fp32 = [&](const std::string& name, const Format& format, bool block_scaled) {
      const Product product(s, format, Accumulator::fp32, block_scaled);
      report.row(name, s, "fp32", measure([&] { product.run(); }, [&] { fp32.run(); }));
    };
    beside_fp32("bf16", kBf16, false);
    beside_fp32("fp16", kFp16, false);
    beside_fp32("fp8-block", kE4M3, true);
  }
  const Shape s{512, 512, 512};
  const Product fp32(s, kFp32, Accumulator::fp32, false);
  const auto emulated = [&](const std::string& name, const Format& format, Accumulator acc) {
    const Product product(s, format, acc, false);
    report.row(name, s, "fp32", measure([&] { product.run(); }, [&] { fp32.run(); }));
  };
  emulated("hopper16, bf16", kBf16, Accumulator::hopper16);
  emulated("hopper16, fp16", kFp16, Accumulator::hopper16);
  emulated("hopper16, tf32", kTf32, Accumulator::hopper16);
  emulated("ampere16, bf16", kBf16, Accumulator::ampere16);
  emulated("hopper8, e4m3", kE4M3, Accumulator::hopper8);
  emulated("fp16, fp16", kFp16, Accumulator::fp16);
}

/// One line of bench_steps.
void print_step(bool json,
                const std::string& model,
                const std::string& step,
                const std::string& peer,
                const Times& times) {
  const double ratio = times.ours / times.peer;
  if (json) {
    JsonObject row;
    row.add("bench", "step")
        .add("name", std::string_view(step))
        .add("model", std::string_view(model))
        .add("threads", num_threads())
        .add("ms", times.ours * 1e3)
        .add("peer", std::string_view(peer))
        .add("peer_ms", times.peer * 1e3)
        .add("ratio", ratio);
    std::printf("%s\n", row.text().c_str());
  } else {
    std::printf("%-22s %-10s %10.2f   %-24s %10.2f %8.3f\n",
                model.c_str(),
                step.c_str(),
                times.ours * 1e3,
                peer.c_str(),
                times.peer * 1e3,
                ratio);
  }
  std::fflush(stdout);
}

/// Ratios are times over the peer's: of an FP32 step over its products alone, of a narrow step over
/// the FP32 one. `only`: what the names of the models begin with; `rounds`: at least so many turns.
void bench_steps(bool json, const std::string& only, size_t rounds) {
  if (!json) {
    std::printf(
        "\n%-22s %-10s %10s   %-24s %10s %8s\n", "step", "recipe", "ms", "beside", "ms", "ratio");
  }
  const std::vector<std::string> recipes = {"fp32", "bf16", "fp16", "fp8-block"};
  for (const StepCase& what : step_cases()) {
    if (!what.name.starts_with(only)) {
      continue;
    }
    const StepGemms gemms(what);
    std::deque<BenchStep> steps;
    std::vector<std::function<void()>> contenders{[&] { gemms.run(); }};
    for (const std::string& recipe : recipes) {
      contenders.emplace_back([&step = steps.emplace_back(what, recipe)] { step.run(); });
    }
    const std::vector<double> times = measure(contenders, rounds);
    const std::string speed =
        json ? "" : concat(", ", std::llround(gemms.flop() / times[0] * 1e-9), " GFLOP/s");
    print_step(json, what.name, "fp32", "its GEMMs" + speed, {times[1], times[0]});
    for (size_t i = 1; i < recipes.size(); ++i) {
      print_step(json, what.name, recipes[i], "fp32 step", {times[i + 1], times[1]});
    }
  }
}

int run(int argc, char** argv) {
  cxxopts::Options options("cpu_bench", "CPU speed as ratios measured in one run");
  options.add_options()("threads", "threads (default: all)", cxxopts::value<int>())(
      "only", "gemm, mlp or gpt (default: all)", cxxopts::value<std::string>())(
      "rounds", "turns of each training step", cxxopts::value<int>()->default_value("7"))(
      "cpu-time", "measure this process's CPU time, not wall clock")(
      "json", "one JSON object a line")("help", "this text");
  bool json = false;
  std::string only;
  int rounds = 0;
  try {
    const cxxopts::ParseResult flags = options.parse(argc, argv);
    HALFTONE_CHECK(
        flags.unmatched().empty(), "cpu_bench: unexpected argument '", flags.unmatched()[0], "'");
    if (flags.count("help") > 0) {
      std::cout << options.help();
      return 0;
    }
    if (flags.count("threads") > 0) {
      set_num_threads(flags["threads"].as<int>());
    }
    if (flags.count("only") > 0) {
      only = flags["only"].as<std::string>();
      HALFTONE_CHECK(only == "gemm" || only == "mlp" || only == "gpt",
                     "cpu_bench: --only ",
                     only,
                     ", expected gemm, mlp or gpt");
    }
    rounds = flags["rounds"].as<int>();
    HALFTONE_CHECK(rounds >= 1, "cpu_bench: --rounds ", rounds, ", expected at least 1");
    if (flags.count("cpu-time") > 0) {
      timing_clock = CLOCK_PROCESS_CPUTIME_ID;
    }
    json = flags.count("json") > 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "; see cpu_bench --help\n";
    return 2;
  }
  EigenPeer::setNbThreads(num_threads());
  if (!json) {
    std::printf("%d threads; the peer runs on %d\n", num_threads(), EigenPeer::nbThreads());
  }
  if (only.empty() || only == "gemm") {
    bench_gemm(GemmReport(json));
  }
  if (only != "gemm") {
    bench_steps(json, only, static_cast<size_t>(rounds));
  }
  return 0;
}

}  // namespace
}  // namespace halftone

int main(int argc, char** argv) {
  // The peer's OpenMP threads would spin after their work and take a core from whoever comes next.
  // libgomp reads the policy when it is loaded, so the program starts once more with it.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);  // returns only if there is no /proc; then the rows are noisier
  }
  try {
    return halftone::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "cpu_bench: " << error.what() << '\n';
    return 1;
  }
}
