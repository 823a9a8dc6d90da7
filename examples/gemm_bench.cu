// gemm_bench: every GEMM kernel that takes a shape beside cuBLASLt, in one process.
//   gemm_bench --suite square|gpt2|char|mlp|deepseek [--format F] [--epilogue E] [--json]
//   gemm_bench -m M -n N -k K [--layout NT]     one shape; T: stored transposed
//   gemm_bench --ladder                         every rung at 4096^3 and what it reaches
// F: bf16, fp16, tf32; E: none, bias, gelu (with bias and pre-activation).
// Both sides get the same epilogue, output type and accumulation. Inputs are random normal, rotated
// through buffers larger than the L2 cache; a time is the median of replays of a captured graph of
// launches, the two sides taking turns. Errors, without an epilogue, are those of 4,096 outputs,
// the last tile among them, against a product in double.
#include <algorithm>
#include <cmath>
#include <cxxopts.hpp>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda/check.cuh"
#include "examples/cublaslt_gemm.cuh"
#include "ops/gemm/fragments.h"
#include "ops/gemm/gemm_config.h"

namespace {

using namespace halftone;

constexpr int64_t kRotatedBytes = int64_t{160} << 20;  // well above the L2 cache
constexpr int kSamples = 4096;
constexpr double kPeakTflops = 989.5;  // H100 and H200, dense 16-bit

struct Shape {
  int64_t M, N, K;
  std::string layout;       // of A and B as stored: N row-major, T transposed
  bool accumulate = false;  // FP32 output, added to what is there: a weight gradient
};

// ---- Device side: inputs and errors.

__device__ float normal_at(uint64_t i, uint32_t seed) {
  uint64_t x = i * 2654435761u + seed * 0x9e3779b97f4a7c15u + 1;
  for (const uint64_t factor : {0xff51afd7ed558ccdu, 0xc4ceb9fe1a85ec53u}) {
    x = (x ^ x >> 33) * factor;
  }
  x ^= x >> 33;
  const float u = (static_cast<float>(x >> 40) + 1.0f) / 16777217.0f;
  const float v = static_cast<float>(x >> 8 & 0xffffff) / 16777216.0f;
  return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}

DType storage_of(const Format& format) {
  return format == kBf16 ? DType::bf16 : format == kFp16 ? DType::f16 : DType::f32;
}

__device__ double value_at(const void* data, DType dtype, int64_t i) {
  return dtype == DType::bf16  ? decode(kBf16, static_cast<const uint16_t*>(data)[i])
         : dtype == DType::f16 ? decode(kFp16, static_cast<const uint16_t*>(data)[i])
                               : static_cast<const float*>(data)[i];
}

__global__ void fill_kernel(void* data, DType dtype, int64_t size, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * blockDim.x) {
    const float x = normal_at(i, seed);
    if (dtype == DType::f32) {
      static_cast<float*>(data)[i] = x;
    } else {
      static_cast<uint16_t*>(data)[i] =
          static_cast<uint16_t>(dtype == DType::bf16 ? encode(kBf16, x) : encode(kFp16, x));
    }
  }
}

// One block an output: sums[0] += (D - product)^2, sums[1] += product^2. Without an epilogue.
__global__ void error_kernel(GemmProblem p, DType in, double* sums) {
  __shared__ double partial[128];
  const int64_t total = p.M * p.N;
  const int64_t from_end = blockIdx.x / 2;  // half of the samples are the last outputs
  const int64_t index = blockIdx.x % 2 == 0 && from_end < total
                            ? total - 1 - from_end
                            : static_cast<int64_t>(blockIdx.x * 0x9e3779b97f4a7c15u % total);
  const int64_t m = index / p.N;
  const int64_t n = index % p.N;
  double sum = 0;
  for (int64_t k = threadIdx.x; k < p.K; k += 128) {
    const double a =
        value_at(p.a.data, in, p.a.transposed ? k * p.a.stride + m : m * p.a.stride + k);
    const double b =
        value_at(p.b.data, in, p.b.transposed ? n * p.b.stride + k : k * p.b.stride + n);
    sum += a * b;
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    double expected = 0;
    for (const double x : partial) {
      expected += x;
    }
    const double found = value_at(p.d, p.d_dtype, m * p.d_stride + n);
    atomicAdd(&sums[0], (found - expected) * (found - expected));
    atomicAdd(&sums[1], expected * expected);
  }
}

// ---- Buffers.

class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes) { HALFTONE_CUDA_CHECK(cudaMalloc(&data_, bytes)); }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_;
};

/// The problem several times over, each in buffers of its own.
class RotatedProblems {
 public:
  RotatedProblems(const Shape& s, const Format& format, const std::string& epilogue) {
    const bool is_16_bit = format.bits() == 16;
    const DType d_dtype = s.accumulate || !is_16_bit ? DType::f32
                          : format == kBf16          ? DType::bf16
                                                     : DType::f16;
    const int64_t in_size = is_16_bit ? 2 : 4;
    const int64_t bytes =
        (s.M + s.N) * s.K * in_size + s.M * s.N * static_cast<int64_t>(size_of(d_dtype));
    const int64_t count =
        std::clamp<int64_t>(1 + kRotatedBytes / std::max<int64_t>(bytes, 1), 2, 8);
    for (int64_t i = 0; i < count; ++i) {
      GemmProblem p;
      p.M = s.M, p.N = s.N, p.K = s.K;
      p.a = {.data = filled(s.M * s.K, format, 2 * i + 1),
             .format = format,
             .transposed = s.layout[0] == 'T',
             .stride = s.layout[0] == 'T' ? s.M : s.K};
      p.b = {.data = filled(s.N * s.K, format, 2 * i + 2),
             .format = format,
             .transposed = s.layout[1] == 'T',
             .stride = s.layout[1] == 'T' ? s.K : s.N};
      p.d = zeroed(s.M * s.N * static_cast<int64_t>(size_of(d_dtype)));
      p.d_dtype = d_dtype;
      p.d_stride = s.N;
      p.accumulate = s.accumulate;
      if (epilogue != "none" && !s.accumulate && is_16_bit) {
        p.epilogue.bias = i == 0 ? filled(s.N, format, 99) : problems[0].epilogue.bias;
        p.epilogue.bias_dtype = d_dtype;
        if (epilogue == "gelu") {
          p.epilogue.activation = Activation::gelu;
          p.epilogue.pre_activation =
              i == 0 ? zeroed(s.M * s.N * 2) : problems[0].epilogue.pre_activation;
        }
      }
      problems.push_back(p);
    }
    HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());
  }

  std::vector<GemmProblem> problems;

 private:
  void* zeroed(int64_t bytes) {
    buffers_.push_back(std::make_unique<Buffer>(bytes));
    HALFTONE_CUDA_CHECK(cudaMemset(buffers_.back()->data(), 0, bytes));
    return buffers_.back()->data();
  }
  void* filled(int64_t size, const Format& format, int64_t seed) {
    void* data = zeroed(size * (format.bits() == 16 ? 2 : 4));
    fill_kernel<<<1024, 256>>>(data, storage_of(format), size, static_cast<uint32_t>(seed));
    HALFTONE_CUDA_CHECK_LAUNCH();
    return data;
  }
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// ---- Timing.

class Events {
 public:
  Events() {
    HALFTONE_CUDA_CHECK(cudaEventCreate(&start_));
    HALFTONE_CUDA_CHECK(cudaEventCreate(&stop_));
  }
  ~Events() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  float milliseconds(cudaStream_t stream, const std::function<void()>& work) {
    HALFTONE_CUDA_CHECK(cudaEventRecord(start_, stream));
    work();
    HALFTONE_CUDA_CHECK(cudaEventRecord(stop_, stream));
    HALFTONE_CUDA_CHECK(cudaEventSynchronize(stop_));
    float ms = 0;
    HALFTONE_CUDA_CHECK(cudaEventElapsedTime(&ms, start_, stop_));
    return ms;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

DeviceCaps device_caps() {
  int major = 0, minor = 0, multiprocessors = 0;
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  return {10 * major + minor, multiprocessors};
}

float median(std::vector<float> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

struct Contender {
  std::string name;
  std::function<void(const GemmProblem&)> run;
  float ms = 0;
  std::optional<double> error{};  // sampled where there is no epilogue
};

class Bench {
 public:
  Bench(const cxxopts::ParseResult& flags)
      : format_(parse_format(flags["format"].as<std::string>())),
        epilogue_(flags["epilogue"].as<std::string>()),
        kernel_(flags["kernel"].as<std::string>()),
        json_(flags["json"].as<bool>()),
        stream_(static_cast<cudaStream_t>(cuda::current_stream())) {}

  void measure(const Shape& shape) {
    RotatedProblems rotated(shape, format_, epilogue_);
    const std::vector<GemmProblem>& problems = rotated.problems;
    CublasLtGemm peer(problems[0]);
    const int algorithm = fastest(peer, problems);
    std::vector<Contender> contenders;
    contenders.push_back(
        {"cublaslt", [&](const GemmProblem& p) { peer.run(algorithm, p, stream_); }});
    for (const GemmKernel kernel : kGemmKernels) {
      const std::string name(name_of(kernel));
      if ((kernel_ == "all" || kernel_ == name) && refusal(kernel, problems[0], caps_).empty()) {
        contenders.push_back({name, [name](const GemmProblem& p) {
                                gemm(p, Device{DeviceType::cuda, 0}, name);
                              }});
      }
    }
    for (Contender& contender : contenders) {
      if (epilogue_ == "none") {
        contender.error = error_of(contender, problems[0]);
      }
    }
    time(contenders, problems);
    for (const Contender& contender : contenders) {
      print(shape, contender, contenders[0].ms);
    }
  }

  void print_means() const {
    if (ratios_.empty()) {
      return;
    }
    double sum = 0;
    double least = 1e9;
    for (const double ratio : ratios_) {
      sum += std::log(ratio);
      least = std::min(least, ratio);
    }
    std::cout << "wgmma over cuBLASLt: geometric mean "
              << std::exp(sum / static_cast<double>(ratios_.size())) << ", least " << least << ", "
              << ratios_.size() << " shapes\n";
  }

 private:
  int fastest(const CublasLtGemm& peer, const std::vector<GemmProblem>& problems) {
    int best = -1;
    float best_ms = 1e30f;
    for (int i = 0; i < peer.num_algorithms(); ++i) {
      std::vector<float> times;
      bool works = true;
      for (int r = 0; r < 6; ++r) {
        const float ms = events_.milliseconds(
            stream_, [&] { works = peer.run(i, problems[r % problems.size()], stream_) && works; });
        if (r > 0) {
          times.push_back(ms);
        }
      }
      if (works && median(times) < best_ms) {
        best_ms = median(times);
        best = i;
      }
    }
    if (best < 0) {
      throw CudaError("cuBLASLt has no algorithm for this shape");
    }
    return best;
  }

  double error_of(const Contender& contender, const GemmProblem& p) {
    Buffer sums(2 * sizeof(double));
    HALFTONE_CUDA_CHECK(
        cudaMemsetAsync(p.d, p.accumulate ? 0 : 0xFF, p.M * p.N * size_of(p.d_dtype), stream_));
    HALFTONE_CUDA_CHECK(cudaMemsetAsync(sums.data(), 0, sums.bytes(), stream_));
    contender.run(p);
    error_kernel<<<kSamples, 128, 0, stream_>>>(
        p, storage_of(format_), static_cast<double*>(sums.data()));
    HALFTONE_CUDA_CHECK_LAUNCH();
    double host[2];
    HALFTONE_CUDA_CHECK(
        cudaMemcpyAsync(host, sums.data(), sizeof host, cudaMemcpyDefault, stream_));
    HALFTONE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return std::sqrt(host[0] / host[1]);
  }

  void time(std::vector<Contender>& contenders, const std::vector<GemmProblem>& problems) {
    const GemmProblem& p = problems[0];
    const double flop =
        2.0 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
    const int launches = flop < 8e9 ? 40 : flop < 2e11 ? 8 : 2;
    const int replays = flop < 5e11 ? 15 : 7;
    std::vector<cudaGraphExec_t> graphs;
    for (const Contender& contender : contenders) {
      contender.run(p);
      cudaGraph_t graph = nullptr;
      HALFTONE_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
      for (int i = 0; i < launches; ++i) {
        contender.run(problems[i % problems.size()]);
      }
      HALFTONE_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
      graphs.push_back(nullptr);
      HALFTONE_CUDA_CHECK(cudaGraphInstantiate(&graphs.back(), graph, 0));
      HALFTONE_CUDA_CHECK(cudaGraphDestroy(graph));
      HALFTONE_CUDA_CHECK(cudaGraphLaunch(graphs.back(), stream_));
    }
    std::vector<std::vector<float>> times(contenders.size());
    for (int replay = 0; replay < replays; ++replay) {
      for (size_t i = 0; i < contenders.size(); ++i) {
        times[i].push_back(events_.milliseconds(
            stream_, [&] { HALFTONE_CUDA_CHECK(cudaGraphLaunch(graphs[i], stream_)); }));
      }
    }
    for (size_t i = 0; i < contenders.size(); ++i) {
      contenders[i].ms = median(times[i]) / static_cast<float>(launches);
      HALFTONE_CUDA_CHECK(cudaGraphExecDestroy(graphs[i]));
    }
  }

  void print(const Shape& s, const Contender& c, float peer_ms) {
    const double tflops = 2e-9 * static_cast<double>(s.M) * static_cast<double>(s.N) *
                          static_cast<double>(s.K) / c.ms;
    const double ratio = peer_ms / c.ms;
    if (c.name == "wgmma") {
      ratios_.push_back(ratio);
    }
    if (json_) {
      std::cout << "{\"kernel\":\"" << c.name << "\",\"format\":\"" << to_string(format_)
                << "\",\"layout\":\"" << s.layout << "\",\"epilogue\":\"" << epilogue_
                << "\",\"accumulate\":" << (s.accumulate ? "true" : "false") << ",\"m\":" << s.M
                << ",\"n\":" << s.N << ",\"k\":" << s.K << ",\"ms\":" << c.ms
                << ",\"tflops\":" << tflops << ",\"of_cublaslt\":" << ratio;
      if (c.error) {
        std::cout << ",\"error\":" << (std::isfinite(*c.error) ? concat(*c.error) : "\"nan\"");
      }
      std::cout << "}\n";
      return;
    }
    char line[200];
    std::snprintf(line,
                  sizeof line,
                  "%-10s %s %6ld x %5ld x %5ld  %8.4f ms  %6.1f TFLOP/s  %.3f of cuBLASLt  %.3f of "
                  "peak",
                  c.name.c_str(),
                  s.layout.c_str(),
                  static_cast<long>(s.M),
                  static_cast<long>(s.N),
                  static_cast<long>(s.K),
                  c.ms,
                  tflops,
                  ratio,
                  tflops / kPeakTflops);
    std::cout << line;
    if (c.error) {
      std::snprintf(line, sizeof line, "  error %.1e", *c.error);
      std::cout << line;
    }
    std::cout << std::endl;
  }

  Format format_;
  std::string epilogue_;
  std::string kernel_;
  bool json_;
  cudaStream_t stream_;
  Events events_;
  DeviceCaps caps_ = device_caps();
  std::vector<double> ratios_;
};

// ---- Suites.

/// A linear layer of `out` x `in` on `rows` tokens: forward, gradient of the input, gradient of the
/// weight.
void add_layer(std::vector<Shape>& shapes, int64_t rows, int64_t out, int64_t in) {
  shapes.push_back({rows, out, in, "NT"});
  shapes.push_back({rows, in, out, "NN"});
  shapes.push_back({out, in, rows, "TN", true});
}

std::vector<Shape> suite(const std::string& name) {
  std::vector<Shape> shapes;
  const auto layers = [&](int64_t rows, std::initializer_list<std::pair<int64_t, int64_t>> sizes) {
    for (const auto& [out, in] : sizes) {
      add_layer(shapes, rows, out, in);
    }
  };
  if (name == "square") {
    for (const int64_t n : {512, 1024, 2048, 4096, 8192}) {
      shapes.push_back({n, n, n, "NT"});
    }
  } else if (name == "gpt2") {
    layers(32768, {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}});
  } else if (name == "char") {
    layers(16384, {{1152, 384}, {384, 384}, {1536, 384}, {384, 1536}});
  } else if (name == "mlp") {
    layers(128, {{1024, 784}, {1024, 1024}, {10, 1024}});
  } else if (name == "deepseek") {
    layers(4096, {{7168, 2048}, {2112, 7168}, {4096, 7168}, {7168, 16384}});
  } else {
    throw std::invalid_argument("unknown suite '" + name +
                                "'; expected square, gpt2, char, mlp or deepseek");
  }
  return shapes;
}

// ---- Fragments.

/// One line a lane: the places of its elements, register by register.
template <class PlaceOf>
void print_layout(const char* title, int registers, int halves, PlaceOf place_of) {
  std::cout << title << "\n";
  for (int lane = 0; lane < 32; ++lane) {
    std::cout << (lane < 10 ? "  lane  " : "  lane ") << lane << ":";
    for (int r = 0; r < registers; ++r) {
      for (int half = 0; half < halves; ++half) {
        const fragments::Place p = place_of(lane, r, half);
        std::cout << (half == 0 ? "  (" : " (") << p.row << "," << p.column << ")";
      }
    }
    std::cout << "\n";
  }
}

void print_fragments() {
  print_layout("mma.sync m16n8k16, A [16, 16], (row, k)", 4, 2, fragments::mma_a);
  print_layout("mma.sync m16n8k16, B [16, 8], (k, column)", 2, 2, fragments::mma_b);
  print_layout("mma.sync m16n8, C and D [16, 8]", 4, 1, [](int lane, int r, int) {
    return fragments::mma_c(lane, r);
  });
  print_layout("ldmatrix and stmatrix, one 8 x 8 matrix", 1, 2, [](int lane, int, int half) {
    return fragments::ldmatrix(lane, half);
  });
  print_layout("ldmatrix.trans, one 8 x 8 matrix", 1, 2, [](int lane, int, int half) {
    return fragments::ldmatrix_trans(lane, half);
  });
  print_layout("wgmma m64n8, D, warp 1 of 4", 4, 1, [](int lane, int r, int) {
    return fragments::wgmma_d(1, lane, r);
  });
}

/// cxxopts knows one-letter options with one dash only: --m becomes -m.
void accept_long_letters(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--m" || flag == "--n" || flag == "--k") {
      ++argv[i];
    }
  }
}

int run(int argc, char** argv) {
  accept_long_letters(argc, argv);
  cxxopts::Options options("gemm_bench", "GEMM kernels beside cuBLASLt");
  options.add_options()("suite",
                        "square, gpt2, char, mlp or deepseek; several separated by commas",
                        cxxopts::value<std::vector<std::string>>())(
      "m", "rows of D", cxxopts::value<int64_t>())("n", "columns of D", cxxopts::value<int64_t>())(
      "k", "length of the reduction", cxxopts::value<int64_t>())(
      "layout",
      "A and B as stored: NT, NN, TN, TT",
      cxxopts::value<std::string>()->default_value("NT"))(
      "format", "bf16, fp16 or tf32", cxxopts::value<std::string>()->default_value("bf16"))(
      "epilogue",
      "none, bias, or gelu with bias and pre-activation",
      cxxopts::value<std::string>()->default_value("none"))(
      "kernel",
      "a kernel, or all that take the shape",
      cxxopts::value<std::string>()->default_value("all"))("fragments", "which lane holds what")(
      "ladder", "every rung at 4096^3")("json", "one JSON object a line")("help", "this text");
  cxxopts::ParseResult flags;
  std::vector<Shape> shapes;
  try {
    flags = options.parse(argc, argv);
    if (flags.count("help")) {
      std::cout << options.help();
      return 0;
    }
    if (flags.count("fragments")) {
      print_fragments();
      return 0;
    }
    if (flags.count("suite")) {
      for (const std::string& name : flags["suite"].as<std::vector<std::string>>()) {
        const std::vector<Shape> more = suite(name);
        shapes.insert(shapes.end(), more.begin(), more.end());
      }
    } else if (flags.count("ladder")) {
      shapes.push_back({4096, 4096, 4096, "NT"});
    } else {
      const std::string layout = flags["layout"].as<std::string>();
      if (layout != "NT" && layout != "NN" && layout != "TN" && layout != "TT") {
        throw std::invalid_argument("--layout is '" + layout + "', expected NT, NN, TN or TT");
      }
      shapes.push_back(
          {flags["m"].as<int64_t>(), flags["n"].as<int64_t>(), flags["k"].as<int64_t>(), layout});
    }
  } catch (const std::exception& e) {
    std::cerr << "gemm_bench: " << e.what() << "\n" << options.help();
    return 2;
  }
  Bench bench(flags);
  for (const Shape& shape : shapes) {
    bench.measure(shape);
  }
  if (!flags["json"].as<bool>()) {
    bench.print_means();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "gemm_bench: " << e.what() << "\n";
    return 1;
  }
}
