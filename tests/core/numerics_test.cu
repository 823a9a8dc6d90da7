// core/math.h and core/reduce.h on the device: the host's bits, element by element.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/cuda/check.cuh"
#include "core/cuda/reduce.cuh"
#include "core/math.h"
#include "core/reduce.h"
#include "tests/support/bits.h"
#include "tests/support/device_array.cuh"

namespace halftone {
namespace {

using testing::DeviceArray;

class DeviceNumerics : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

enum class Function { exp, log, tanh, rsqrt, erf, sigmoid, gelu, gelu_grad, maximum };

HALFTONE_HD float apply(Function function, float x) {
  switch (function) {
    case Function::exp:
      return math::exp(x);
    case Function::log:
      return math::log(x);
    case Function::tanh:
      return math::tanh(x);
    case Function::rsqrt:
      return math::rsqrt(x);
    case Function::erf:
      return math::erf(x);
    case Function::sigmoid:
      return math::sigmoid(x);
    case Function::gelu:
      return math::gelu(x);
    case Function::gelu_grad:
      return math::gelu_grad(x);
    case Function::maximum:
      return maximum(x, -x);
  }
  return 0.0f;
}

/// y[i] = function of the float whose bits are i * stride.
__global__ void apply_kernel(Function function, uint32_t stride, float* y) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = apply(function, std::bit_cast<float>(i * stride));
}

TEST_F(DeviceNumerics, FunctionsGiveTheHostsBits) {
  constexpr uint32_t kStride = 257;
  constexpr uint32_t kCount = 1 << 24;  // all of the float range
  DeviceArray<float> y(kCount);
  for (const Function function : {Function::exp,
                                  Function::log,
                                  Function::tanh,
                                  Function::rsqrt,
                                  Function::erf,
                                  Function::sigmoid,
                                  Function::gelu,
                                  Function::gelu_grad,
                                  Function::maximum}) {
    apply_kernel<<<kCount / 256, 256>>>(function, kStride, y.data());
    HALFTONE_CUDA_CHECK_LAUNCH();
    std::vector<float> actual = y.to_host();
    std::vector<float> expected(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      expected[i] = apply(function, std::bit_cast<float>(i * kStride));
      if (std::isnan(expected[i]) && std::isnan(actual[i])) {
        actual[i] = expected[i];  // payloads are not promised
      }
    }
    EXPECT_TRUE(halftone::testing::same_bits(actual, expected))
        << "function " << static_cast<int>(function);
  }
}

/// sums: by one warp, by the block; then the maximum, in y[0..2].
__global__ void row_kernel(int64_t n, const float* x, float* y) {
  __shared__ float chunk_sums[16];
  const auto element = [&](int64_t i) { return x[i]; };
  const float by_block = device::block_row_sum<float>(n, element, chunk_sums);
  if (threadIdx.x < device::kWarpSize) {
    const float by_warp = device::warp_row_sum<float>(n, element);
    const float largest = device::warp_row_max<float>(n, element);
    if (threadIdx.x == device::kWarpSize - 1) {
      y[0] = by_warp;
      y[1] = by_block;
      y[2] = largest;
    }
  }
}

std::vector<float> random_values(int64_t n) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) {
    value = normal(generator) * std::exp(3 * normal(generator));
  }
  return values;
}

TEST_F(DeviceNumerics, RowTreesGiveTheHostsBits) {
  for (const int64_t n : {0, 1, 7, 8, 255, 256, 257, 4095, 4096, 4097, 50304}) {
    const std::vector<float> x = random_values(n + 1);
    DeviceArray<float> device_x(x);
    DeviceArray<float> y(3);
    row_kernel<<<1, 128>>>(n, device_x.data(), y.data());
    HALFTONE_CUDA_CHECK_LAUNCH();
    const auto element = [&](int64_t i) { return x[i]; };
    const float sum = row_sum<float>(n, element);
    EXPECT_TRUE(halftone::testing::same_bits(
        y.to_host(), std::vector<float>{sum, sum, row_max<float>(n, element)}))
        << "n = " << n;
  }
}

/// One column of one panel, from sums of 16 rows (y[0]) and from accumulator fragments (y[1]).
__global__ void panel_kernel(int64_t rows, const float* x, float* y) {
  __shared__ float sixteens[2][8];
  const int warp = threadIdx.x / device::kWarpSize;  // 8 of them
  const int64_t first = 16 * warp;
  const auto element = [&](int64_t r) { return x[first + r]; };
  const auto present = [&](int64_t r) { return first + r < rows ? x[first + r] : 0.0f; };
  const int g = threadIdx.x % device::kWarpSize / 4;
  const float fragment = device::fragment_column_sum(present(g), present(g + 8));
  if (threadIdx.x % device::kWarpSize == 0) {
    sixteens[0][warp] = device::sixteen_row_sum<float>(rows - first, element);
    sixteens[1][warp] = fragment;
  }
  __syncthreads();
  if (threadIdx.x < 2) {
    y[threadIdx.x] = device::panel_of_sixteens(sixteens[threadIdx.x], 1);
  }
}

TEST_F(DeviceNumerics, ColumnTreesGiveTheHostsBits) {
  for (const int64_t rows : {1, 8, 9, 16, 17, 100, 127, 128}) {
    const std::vector<float> x = random_values(rows);
    DeviceArray<float> device_x(x);
    DeviceArray<float> y(2);
    panel_kernel<<<1, 256>>>(rows, device_x.data(), y.data());
    HALFTONE_CUDA_CHECK_LAUNCH();
    float sum;
    column_sum(
        rows, 1, [&](int64_t r, int64_t) { return x[r]; }, &sum);
    EXPECT_TRUE(halftone::testing::same_bits(y.to_host(), std::vector<float>{sum, sum}))
        << "rows = " << rows;
  }
}

}  // namespace
}  // namespace halftone
