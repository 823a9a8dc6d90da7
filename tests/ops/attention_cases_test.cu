// Attention after a kernel that left NaN in all shared memory: what a tile's end reads must have
// been written first.
#include <gtest/gtest.h>

#include "core/cuda/launch.cuh"
#include "ops/attention/attention.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

constexpr int kThreads = 1024;

__global__ void fill_shared_kernel(int words) {
  extern __shared__ uint32_t memory[];
  for (int i = threadIdx.x; i < words; i += kThreads) {
    memory[i] = 0x7fc07fc0u;  // NaN in FP32, BF16 and FP16
  }
}

void fill_shared_memory_with_nan() {
  int bytes = 0;
  int multiprocessors = 0;
  HALFTONE_CUDA_CHECK(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, testing::kGpu.index));
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(
      &multiprocessors, cudaDevAttrMultiProcessorCount, testing::kGpu.index));
  HALFTONE_CUDA_CHECK(
      cudaFuncSetAttribute(fill_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cuda::launch(fill_shared_kernel,
               {4 * multiprocessors, kThreads, static_cast<size_t>(bytes)},
               bytes / static_cast<int>(sizeof(uint32_t)));
}

TEST(Cases, FC53_SharedMemoryHoldsNaNBeforehand) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const int64_t length : {1, 9, 33, 65, 127, 129, 1001}) {
    const auto run = [](const testing::Tensors& in) {
      AttentionOptions options{.heads = 1};
      options.precision.a.format = options.precision.b.format =
          in[0].dtype() == DType::f32 ? kTf32 : format_of(in[0].dtype());
      options.precision.acc = Accumulator::hopper16;
      if (!in[0].is_cpu()) {
        fill_shared_memory_with_nan();
      }
      return attention(in[0], options);
    };
    testing::expect_same_on_gpu(run, {testing::random_tensor({1, length, 24}, 1)});
  }
}

}  // namespace
}  // namespace halftone
