// The GPU's GEMM against the CPU's emulation of its Tensor Core, bit for bit: kernels, layouts,
// formats, epilogues, scalings, sizes with primes and tile edges, strides that TMA cannot read. The
// CUDA-core kernel, whose order no CPU kernel has, against double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/formats.h"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_sm90_launch.cuh"
#include "tests/support/device_array.cuh"
#include "tests/support/gemm_case.h"

namespace halftone {
namespace {

using testing::DeviceArray;
using testing::GemmCase;
using testing::GemmSpec;
using testing::StoredMatrix;

const Device kCuda{DeviceType::cuda, 0};

/// Device memory with the bytes of a matrix, poisoned guards on both sides.
class DeviceMatrix {
 public:
  explicit DeviceMatrix(const StoredMatrix& matrix)
      : size_(matrix.bytes().size()), bytes_(std::vector<uint8_t>(size_ + 2 * kGuard, 0xA5)) {
    HALFTONE_CUDA_CHECK(cudaMemcpy(data(), matrix.bytes().data(), size_, cudaMemcpyHostToDevice));
  }
  void* data() { return bytes_.data() + kGuard; }
  std::vector<uint8_t> to_host() const {
    const std::vector<uint8_t> all = bytes_.to_host();
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(all[i], 0xA5) << "written before the matrix";
      EXPECT_EQ(all[kGuard + size_ + i], 0xA5) << "written behind the matrix";
    }
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t size_;
  DeviceArray<uint8_t> bytes_;
};

int compute_capability() {
  int major = 0, minor = 0;
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  return 10 * major + minor;
}

Accumulator own_accumulator() {
  return compute_capability() >= 90 ? Accumulator::hopper16 : Accumulator::ampere16;
}

std::vector<float> with_nan_behind(std::vector<float> scales) {
  scales.insert(scales.end(), 64, std::nanf(""));
  return scales;
}

/// A case on the device. Everything it points to lives as long as it does.
class DeviceCase {
 public:
  explicit DeviceCase(const GemmCase& c)
      : a_(c.a),
        b_(c.b),
        d_(c.d),
        a_scales_(with_nan_behind(c.a_scales)),
        b_scales_(with_nan_behind(c.b_scales)),
        sums_(c.column_sums),
        problem(c.problem) {
    problem.a.data = a_.data();
    problem.b.data = b_.data();
    problem.d = d_.data();
    if (!c.a_scales.empty()) {
      problem.a.scales.data = a_scales_.data();
    }
    if (!c.b_scales.empty()) {
      problem.b.scales.data = b_scales_.data();
    }
    const auto optional = [](const StoredMatrix& matrix,
                             std::unique_ptr<DeviceMatrix>& copy) -> void* {
      copy = std::make_unique<DeviceMatrix>(matrix);
      return copy->data();
    };
    GemmEpilogue& e = problem.epilogue;
    if (c.spec.bias) {
      e.bias = optional(c.bias, bias_);
    }
    if (c.spec.pre_activation) {
      e.pre_activation = optional(c.pre, pre_);
    }
    if (c.spec.gradient) {
      e.gradient_of = optional(c.gradient, gradient_);
    }
    if (c.spec.residual) {
      e.residual = optional(c.residual, residual_);
    }
    if (c.spec.column_sums) {
      e.column_sums = sums_.data();
    }
  }

  void run(std::string_view kernel) {
    HALFTONE_CUDA_CHECK(
        cudaDeviceSynchronize());  // copies from pageable memory may still be on their way
    gemm(problem, kCuda, kernel);
    HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  std::vector<uint8_t> d() const { return d_.to_host(); }
  std::vector<uint8_t> pre() const { return pre_->to_host(); }
  std::vector<float> sums() const { return sums_.to_host(); }

 private:
  DeviceMatrix a_, b_, d_;
  DeviceArray<float> a_scales_, b_scales_, sums_;
  std::unique_ptr<DeviceMatrix> bias_, pre_, gradient_, residual_;

 public:
  GemmProblem problem;
};

std::string describe(const GemmSpec& s, std::string_view kernel) {
  std::ostringstream out;
  out << kernel << " " << s.M << "x" << s.N << "x" << s.K << " batch " << s.batch << " "
      << to_string(s.a) << (s.a_transposed ? "^T" : "") << " * " << to_string(s.b)
      << (s.b_transposed ? "^T" : "") << " -> " << s.d << " gap " << s.row_gap
      << (s.bias ? " bias" : "") << (s.pre_activation ? " pre" : "") << " act "
      << static_cast<int>(s.activation) << (s.gradient ? " gradient" : "")
      << (s.residual ? " residual" : "") << (s.accumulate ? " accumulate" : "")
      << (s.column_sums ? " sums" : "") << " promote " << s.promote << " scales " << s.a_block_mn
      << "," << s.a_block_k << " " << s.b_block_mn << "," << s.b_block_k << " seed " << s.seed;
  return out.str();
}

void expect_same(const std::vector<uint8_t>& found,
                 const StoredMatrix& expected,
                 const std::string& what) {
  if (std::memcmp(found.data(), expected.bytes().data(), found.size()) == 0) {
    return;
  }
  const size_t size = size_of(expected.dtype);
  size_t different = 0;
  size_t first = found.size();
  for (size_t i = 0; i < found.size(); i += size) {
    if (std::memcmp(found.data() + i, expected.bytes().data() + i, size) != 0) {
      first = std::min(first, i / size);
      ++different;
    }
  }
  ADD_FAILURE() << what << ": " << different << " of " << found.size() / size
                << " elements differ, the first at row " << first / expected.stride << ", column "
                << first % expected.stride;
}

/// Kernels against the emulation; those that refuse the problem are left out. Returns how many ran.
int expect_bits(GemmSpec spec, const std::vector<std::string_view>& kernels) {
  spec.acc = own_accumulator();
  GemmCase host(spec);
  std::vector<std::unique_ptr<DeviceCase>>
      cases;  // made before D is overwritten: it may accumulate
  std::vector<std::string_view> takers;
  const DeviceCaps caps{compute_capability(), 132};
  for (const std::string_view kernel : kernels) {
    for (const GemmKernel candidate : kGemmKernels) {
      if (name_of(candidate) == kernel && refusal(candidate, host.problem, caps).empty()) {
        takers.push_back(kernel);
        cases.push_back(std::make_unique<DeviceCase>(host));
      }
    }
  }
  gemm(host.problem, Device{});
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string what = describe(spec, takers[i]);
    cases[i]->run(takers[i]);
    expect_same(cases[i]->d(), host.d, what);
    if (spec.pre_activation) {
      expect_same(cases[i]->pre(), host.pre, what + " (pre-activation)");
    }
    if (spec.column_sums) {
      const std::vector<float> sums = cases[i]->sums();
      EXPECT_EQ(std::memcmp(sums.data(), host.column_sums.data(), sums.size() * sizeof(float)), 0)
          << what << " (column sums)";
    }
  }
  return static_cast<int>(takers.size());
}

class GemmCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

const std::vector<std::string_view> kTensorCoreKernels{"wgmma", "mma", "wmma", "wmma_naive"};

template <class... Options>
auto pick(std::mt19937& rng, Options... options) {
  const std::common_type_t<Options...> list[] = {options...};
  return list[rng() % sizeof...(options)];
}

TEST_F(GemmCuda, EqualsTheEmulationInEveryLayout) {
  for (const Format format : {kBf16, kFp16, kTf32}) {
    for (int layout = 0; layout < 4; ++layout) {
      for (const int64_t gap : {0, 3, 8}) {
        GemmSpec s;
        s.M = 130;
        s.N = 264;
        s.K = 200;
        s.batch = 2;
        s.group = gap == 8 ? 0 : 1;
        s.a = s.b = format;
        s.a_transposed = layout & 1;
        s.b_transposed = layout & 2;
        s.row_gap = gap;
        s.d = format == kTf32 ? DType::f32 : format == kBf16 ? DType::bf16 : DType::f16;
        EXPECT_GE(expect_bits(s, kTensorCoreKernels), format == kTf32 ? 2 : 3);
      }
    }
  }
}

TEST_F(GemmCuda, EqualsTheEmulationAtRandom) {
  std::mt19937 rng(20261129);
  for (int i = 0; i < 120; ++i) {
    GemmSpec s;
    s.M = pick(rng, 1, 2, 17, 63, 64, 65, 127, 128, 129, 257, 311);
    s.N = pick(rng, 1, 7, 8, 63, 64, 65, 127, 128, 131, 192, 255, 256, 257, 320);
    s.K = pick(rng, 0, 1, 7, 16, 17, 63, 64, 65, 127, 128, 129, 256, 509);
    s.batch = pick(rng, 1, 1, 1, 3);
    s.group = i % 2;
    s.broadcast_b = rng() % 3 == 0;
    s.a = s.b = pick(rng, 0, 0, 1, 2) == 0 ? kBf16 : rng() % 2 ? kFp16 : kTf32;
    s.a_transposed = rng() % 2;
    s.b_transposed = rng() % 2;
    s.row_gap = pick(rng, 0, 0, 1, 5, 8, 24);
    s.d = pick(rng, DType::f32, DType::bf16, DType::f16);
    s.bias = rng() % 2;
    s.bias_dtype = pick(rng, DType::f32, DType::bf16, DType::f16);
    s.activation = pick(rng, Activation::none, Activation::relu, Activation::gelu);
    s.gradient = s.activation != Activation::none && rng() % 3 == 0;
    s.pre_activation = !s.gradient && rng() % 2;
    s.residual = rng() % 3 == 0;
    s.accumulate = s.d == DType::f32 && rng() % 2;
    s.column_sums = s.batch == 1 && rng() % 3 == 0;
    s.seed = i + 1;
    expect_bits(s, kTensorCoreKernels);
  }
}

TEST_F(GemmCuda, SplitsAddUpInAscendingOrder) {
  for (int layout = 0; layout < 4; ++layout) {
    GemmSpec s;
    s.M = 136;
    s.N = 72;
    s.K = 8200;
    s.a = s.b = layout % 2 == 0 ? kBf16 : kFp16;
    s.a_transposed = layout & 1;
    s.b_transposed = layout & 2;
    s.accumulate = layout != 3;
    s.bias = layout == 3;
    s.column_sums = true;
    GemmCase probe(s);
    ASSERT_LT(k_order(probe.problem).split_k, s.K);
    EXPECT_GE(expect_bits(s, kTensorCoreKernels), 3);
  }
}

TEST_F(GemmCuda, ScaledOperandsEqualTheEmulation) {
  struct Scaling {
    int64_t a_mn, a_k, b_mn, b_k, promote;
  };
  constexpr int64_t kWhole = GemmScales::kWhole;
  const Scaling scalings[] = {{0, 0, 0, 0, 128},
                              {kWhole, kWhole, kWhole, kWhole, 128},
                              {kWhole, kWhole, kWhole, kWhole, 0},
                              {1, kWhole, 1, kWhole, 128},
                              {1, 128, 128, 128, 128},
                              {1, 128, 1, 128, 128},
                              {1, 128, 128, 128, 48},
                              {1, 32, 1, 32, 128},
                              {1, 16, 1, 16, 128},
                              {1, 64, 64, 64, 0}};
  const Format formats[] = {
      kE4M3, kE5M2, kE2M3, kE3M2, kE2M1, Format{3, 4, Specials::nan_only}, kBf16};
  uint32_t seed = 1;
  for (const Scaling& x : scalings) {
    for (const Format& format : formats) {
      GemmSpec s;
      s.M = 150;
      s.N = 140;
      s.K = 333;
      s.a = format;
      s.b = format == kE5M2 ? kE4M3 : format;
      s.a_transposed = seed & 1;
      s.b_transposed = seed & 2;
      s.a_block_mn = x.a_mn, s.a_block_k = x.a_k, s.b_block_mn = x.b_mn, s.b_block_k = x.b_k;
      s.promote = x.promote;
      s.d = seed % 3 == 0 ? DType::f32 : DType::bf16;
      s.bias = seed & 4;
      s.seed = seed++;
      EXPECT_GE(expect_bits(s, {"mma"}), 1);
    }
  }
}

TEST_F(GemmCuda, Fp16TimesTransposeIsWithin2em4OfFloat32) {
  GemmSpec s;
  s.M = 256, s.N = 320, s.K = 512;
  s.a = s.b = kFp16;
  s.b_transposed = true;
  for (const std::string_view kernel : {"wgmma", "mma", "wmma", "wmma_naive", "simt"}) {
    GemmCase host(s);
    DeviceCase device(host);
    device.run(kernel);
    const std::vector<uint8_t> found = device.d();
    double error = 0, norm = 0;
    for (int64_t m = 0; m < s.M; ++m) {
      for (int64_t n = 0; n < s.N; ++n) {
        float value = 0;
        std::memcpy(&value, found.data() + (m * host.d.stride + n) * 4, 4);
        const double expected = host.product(0, m, n).value;
        error += (value - expected) * (value - expected);
        norm += expected * expected;
      }
    }
    EXPECT_LE(std::sqrt(error / norm), 2e-4) << kernel;
  }
}

TEST_F(GemmCuda, SimtIsWithinTheBoundOfADotProduct) {
  std::mt19937 rng(7);
  for (int i = 0; i < 24; ++i) {
    GemmSpec s;
    s.M = pick(rng, 1, 17, 128, 131);
    s.N = pick(rng, 1, 9, 128, 150);
    s.K = pick(rng, 0, 1, 16, 77, 260);
    s.batch = pick(rng, 1, 2);
    s.group = i % 2;
    s.a = s.b = pick(rng, 0, 1) == 0 ? kFp32 : kE4M3;
    if (s.a == kE4M3 && rng() % 2) {
      s.a_block_mn = 1, s.a_block_k = 32, s.b_block_mn = 32, s.b_block_k = 32;
    }
    s.a_transposed = rng() % 2;
    s.b_transposed = rng() % 2;
    s.row_gap = pick(rng, 0, 1);
    s.bias = rng() % 2;
    s.seed = i + 1;
    GemmCase host(s);
    DeviceCase device(host);
    device.run("simt");
    const std::vector<uint8_t> found = device.d();
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t m = 0; m < s.M; ++m) {
        for (int64_t n = 0; n < s.N; ++n) {
          float value = 0;
          std::memcpy(&value, found.data() + host.d.index(b, m, n) * 4, 4);
          const GemmCase::Product product = host.product(b, m, n);
          const double expected = host.finish(product.value, b, m, n);
          // A chain of K fused additions, then scale, bias: each at most half an ulp of what it
          // produces.
          const double bound =
              (s.K + 4) * 0x1p-24 * (product.magnitude + std::abs(expected)) + 1e-37;
          ASSERT_TRUE(std::abs(value - expected) <= bound)
              << describe(s, "simt") << " at " << m << ", " << n;
        }
      }
    }
  }
}

// ---- Shapes that reach the large tiles, where the emulation would take minutes: kernels against
// each other, on the device.

/// Values of every sign with exponents in a small range, for any 16-bit format.
std::vector<uint16_t> random_values(size_t size, const Format& format, uint64_t seed) {
  std::vector<uint16_t> values(size);
  for (uint16_t& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint16_t>(seed >> 33);
    const int exponent = bits >> 11 & 3;
    value = static_cast<uint16_t>(format == kBf16 ? (bits & 0x807F) | (124 + exponent) << 7
                                                  : (bits & 0x83FF) | (13 + exponent) << 10);
  }
  return values;
}

/// Different elements of two device buffers, counted.
__global__ void count_different(const uint32_t* a,
                                const uint32_t* b,
                                int64_t size,
                                unsigned long long* count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * blockDim.x) {
    if (a[i] != b[i]) {
      atomicAdd(count, 1ull);
    }
  }
}

/// A plain 16-bit problem on the device: FP32 or 16-bit output, bias or none.
class LargeCase {
 public:
  LargeCase(int64_t M, int64_t N, int64_t K, const Format& format, int layout, DType d_dtype)
      : a_(random_values(M * K, format, 1)),
        b_(random_values(N * K, format, 2)),
        bytes_(M * N * size_of(d_dtype)) {
    problem.M = M;
    problem.N = N;
    problem.K = K;
    problem.a.data = a_.data();
    problem.a.format = format;
    problem.a.transposed = layout & 1;
    problem.a.stride = layout & 1 ? M : K;
    problem.b.data = b_.data();
    problem.b.format = format;
    problem.b.transposed = layout & 2;
    problem.b.stride = layout & 2 ? K : N;
    problem.d_dtype = d_dtype;
    problem.d_stride = N;
  }
  std::unique_ptr<DeviceArray<uint8_t>> output() const {
    auto made =
        std::make_unique<DeviceArray<uint8_t>>(std::vector<uint8_t>((bytes_ + 3) / 4 * 4, 0xFF));
    HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());  // the copy may still be on its way
    return made;
  }
  std::unique_ptr<DeviceArray<uint8_t>> run(std::string_view kernel) {
    auto d = output();
    problem.d = d->data();
    gemm(problem, kCuda, kernel);
    HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());
    return d;
  }
  unsigned long long different(DeviceArray<uint8_t>& x, DeviceArray<uint8_t>& y) const {
    DeviceArray<unsigned long long> count(std::vector<unsigned long long>{0});
    count_different<<<264, 256>>>(reinterpret_cast<uint32_t*>(x.data()),
                                  reinterpret_cast<uint32_t*>(y.data()),
                                  static_cast<int64_t>((bytes_ + 3) / 4),
                                  count.data());
    HALFTONE_CUDA_CHECK_LAUNCH();
    return count.to_host()[0];
  }

 private:
  DeviceArray<uint16_t> a_, b_;
  size_t bytes_;

 public:
  GemmProblem problem;
};

struct LargeShape {
  int64_t M, N, K;
};

TEST_F(GemmCuda, LargeTilesEqualTheMmaKernel) {
  if (compute_capability() != 90) {
    GTEST_SKIP() << "wgmma needs compute capability 9.0";
  }
  const LargeShape shapes[] = {
      {520, 1032, 264}, {2056, 2312, 136}, {4096, 2112, 200}, {5000, 1544, 72}, {1152, 776, 16392}};
  for (const LargeShape& s : shapes) {
    for (int layout = 0; layout < 4; ++layout) {
      for (const Format format : {kBf16, kFp16}) {
        for (const DType d : {DType::f32, format == kBf16 ? DType::bf16 : DType::f16}) {
          LargeCase c(s.M, s.N, s.K, format, layout, d);
          const auto expected = c.run("mma");
          const auto found = c.run("wgmma");
          EXPECT_EQ(c.different(*expected, *found), 0u)
              << s.M << "x" << s.N << "x" << s.K << " layout " << layout << " " << to_string(format)
              << " -> " << d;
        }
      }
    }
  }
}

TEST_F(GemmCuda, LargeEpiloguesEqualTheMmaKernel) {
  if (compute_capability() != 90) {
    GTEST_SKIP() << "wgmma needs compute capability 9.0";
  }
  for (const LargeShape& s : {LargeShape{520, 1032, 264}, {4104, 776, 72}, {8200, 2312, 136}}) {
    DeviceArray<uint16_t> bias(random_values(s.N, kBf16, 3));
    for (const int layout : {0, 2}) {
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
        LargeCase c(s.M, s.N, s.K, kBf16, layout, DType::bf16);
        c.problem.epilogue.bias = bias.data();
        c.problem.epilogue.bias_dtype = DType::bf16;
        c.problem.epilogue.activation = activation;
        const auto expected_pre = c.output();
        const auto found_pre = c.output();
        const auto run = [&](const char* kernel, DeviceArray<uint8_t>& pre) {
          c.problem.epilogue.pre_activation = activation == Activation::none ? nullptr : pre.data();
          return c.run(kernel);
        };
        const auto expected = run("mma", *expected_pre);
        const auto found = run("wgmma", *found_pre);
        const std::string what = concat(s.M,
                                        "x",
                                        s.N,
                                        "x",
                                        s.K,
                                        " layout ",
                                        layout,
                                        " activation ",
                                        static_cast<int>(activation));
        EXPECT_EQ(c.different(*expected, *found), 0u) << what;
        EXPECT_EQ(c.different(*expected_pre, *found_pre), 0u) << what << ", pre-activation";
      }
    }
  }
}

/// Fills the shared memory of every multiprocessor with NaN.
__global__ void poison_shared_kernel(int words) {
  extern __shared__ uint32_t shared_words[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    shared_words[i] = 0xFFFFFFFFu;
  }
}

void poison_shared(cudaStream_t stream) {
  constexpr int kBytes = 232448;
  HALFTONE_CUDA_CHECK(cudaFuncSetAttribute(
      poison_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  poison_shared_kernel<<<132, 512, kBytes, stream>>>(kBytes / 4);
  HALFTONE_CUDA_CHECK_LAUNCH();
}

TEST_F(GemmCuda, TenThousandLaunchesGiveTheSameBits) {
  if (compute_capability() != 90) {
    GTEST_SKIP() << "wgmma needs compute capability 9.0";
  }
  const auto stream = static_cast<cudaStream_t>(cuda::current_stream());
  std::mt19937 rng(3);
  for (int shape = 0; shape < 20; ++shape) {
    const int64_t M = 8 * (1 + rng() % 150) + (shape % 3 == 0 ? 8 : 0);
    const int64_t N = 8 * (1 + rng() % 120);
    const int64_t K = 8 * (1 + rng() % (shape % 4 == 0 ? 900 : 60));
    LargeCase c(M,
                N,
                K,
                shape % 2 == 0 ? kBf16 : kFp16,
                shape % 4,
                shape % 2 == 0 ? DType::bf16 : DType::f16);
    const auto expected = c.run("mma");
    DeviceArray<unsigned long long> count(std::vector<unsigned long long>{0});
    const auto found = c.output();
    c.problem.d = found->data();
    for (int launch = 0; launch < 500; ++launch) {
      HALFTONE_CUDA_CHECK(cudaMemsetAsync(found->data(), 0xFF, M * N * 2, stream));
      poison_shared(stream);
      gemm(c.problem, kCuda, "wgmma");
      count_different<<<64, 256, 0, stream>>>(reinterpret_cast<uint32_t*>(expected->data()),
                                              reinterpret_cast<uint32_t*>(found->data()),
                                              M * N / 2,
                                              count.data());
    }
    HALFTONE_CUDA_CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(count.to_host()[0], 0u) << M << "x" << N << "x" << K;
  }
}

template <class Traits>
void expect_chaos_harmless(const LargeShape& s, int cluster) {
  LargeCase c(s.M, s.N, s.K, kBf16, 2, DType::bf16);
  const auto expected = c.run("mma");
  const auto found = c.output();
  detail::GemmLaunch launch;
  launch.a = c.problem.a;
  launch.b = c.problem.b;
  launch.out.d = found->data();
  launch.out.d_stride = s.N;
  launch.out.M = static_cast<int>(s.M);
  launch.out.N = static_cast<int>(s.N);
  launch.out.d_dtype = DType::bf16;
  launch.out.vectors = true;
  launch.K = s.K;
  launch.config.order.split_k = s.K;
  launch.config.cluster = cluster;
  launch.stream = static_cast<cudaStream_t>(cuda::current_stream());
  for (int i = 0; i < 50; ++i) {
    poison_shared(launch.stream);
    detail::launch_wgmma<Traits>(launch);
  }
  HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(c.different(*expected, *found), 0u)
      << s.M << "x" << s.N << "x" << s.K << " cluster " << cluster;
}

TEST_F(GemmCuda, RandomDelaysChangeNothing) {
  if (compute_capability() != 90) {
    GTEST_SKIP() << "wgmma needs compute capability 9.0";
  }
  using detail::WgmmaTraits;
  for (const int cluster : {1, 2}) {
    for (const LargeShape& s : {LargeShape{2056, 2312, 520}, LargeShape{1160, 520, 72}}) {
      expect_chaos_harmless<WgmmaTraits<BFloat16, 128, 256, 4, 2, false, false, false, true>>(
          s, cluster);
      expect_chaos_harmless<WgmmaTraits<BFloat16, 128, 128, 5, 2, true, false, false, true>>(
          s, cluster);
      expect_chaos_harmless<WgmmaTraits<BFloat16, 64, 64, 8, 1, false, false, false, true>>(
          s, cluster);
    }
  }
}

// ---- Small problems that reach every kernel template, for compute-sanitizer: memcheck and
// synccheck over *Sanitize*, racecheck and initcheck over *SanitizeWithoutTma*, as they know
// nothing of what TMA writes.

void run_if_taken(LargeCase& c, GemmKernel kernel) {
  if (refusal(kernel, c.problem, {compute_capability(), 132}).empty()) {
    c.run(name_of(kernel));
  }
}

void sanitize(const std::vector<GemmKernel>& kernels) {
  for (int layout = 0; layout < 4; ++layout) {
    for (const auto& [M, N] : {std::pair<int64_t, int64_t>{72, 136}, {520, 1032}}) {
      for (const GemmKernel kernel : kernels) {
        LargeCase c(M,
                    N,
                    136,
                    layout % 2 == 0 ? kBf16 : kFp16,
                    layout,
                    layout < 2 ? DType::f32 : DType::bf16);
        c.problem.epilogue.activation = layout == 1 ? Activation::gelu : Activation::none;
        run_if_taken(c, kernel);
      }
    }
  }
}

TEST_F(GemmCuda, SanitizeTma) { sanitize({GemmKernel::wgmma}); }

TEST_F(GemmCuda, SanitizeWithoutTma) {
  sanitize({GemmKernel::mma, GemmKernel::wmma, GemmKernel::wmma_naive});
  // Splits, and operands that are packed, rounded to TF32, promoted or scaled.
  LargeCase split(72, 136, 8200, kBf16, 2, DType::bf16);
  run_if_taken(split, GemmKernel::mma);
  for (const Format& format : {kE4M3, kTf32, kFp32, kBf16}) {
    for (const int64_t block : {16, 32, 128}) {
      GemmSpec s;
      s.M = 72, s.N = 136, s.K = 200;
      s.a = s.b = format;
      s.b_transposed = block != 16;
      if (format == kE4M3) {
        s.a_block_mn = s.b_block_mn = 1;
        s.a_block_k = s.b_block_k = block;
      } else if (format == kBf16) {
        s.promote = block;
      }
      DeviceCase c{GemmCase(s)};
      c.run(format == kFp32 ? "simt" : "mma");
    }
  }
}

TEST_F(GemmCuda, RefusesWhatTheDeviceCannotGive) {
  GemmSpec s;
  s.M = s.N = s.K = 64;
  s.a = s.b = kBf16;
  s.acc = compute_capability() >= 90 ? Accumulator::ampere16 : Accumulator::hopper16;
  GemmCase host(s);
  DeviceCase device(host);
  EXPECT_THROW(gemm(device.problem, kCuda), std::invalid_argument);
  EXPECT_THROW(gemm(device.problem, kCuda, "cutlass"), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
