// The fragment layouts against the hardware: matrices whose elements name their own place go
// through ldmatrix, mma.sync, stmatrix and wgmma.
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include "core/cuda/mma_sm80.cuh"
#include "core/cuda/mma_sm90.cuh"
#include "ops/gemm/fragments.h"
#include "tests/support/device_array.cuh"

namespace halftone::fragments {
namespace {

using testing::DeviceArray;

__device__ uint32_t pack(int low, int high) {
  const __half2 pair = __floats2half2_rn(static_cast<float>(low), static_cast<float>(high));
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ int half_of(uint32_t word, int half) {
  const uint16_t bits = static_cast<uint16_t>(word >> (16 * half));
  return static_cast<int>(__half2float(*reinterpret_cast<const __half*>(&bits)));
}

// One warp. errors: loads, transposing loads, the product's operands, its result, stmatrix.
__global__ void check_sm80_kernel(int* errors) {
  __shared__ __align__(128) __half matrices[4][8][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) {
    (&matrices[0][0][0])[i] = __float2half(static_cast<float>(i));  // 64 matrix + 8 row + column
  }
  __syncwarp();
  const auto address =
      static_cast<uint32_t>(__cvta_generic_to_shared(&matrices[lane / 8][lane % 8][0]));
  uint32_t r[4];
  sm80::ldmatrix_x4<false>(address, r);
  for (int i = 0; i < 8; ++i) {
    const Place p = ldmatrix(lane, i % 2);
    if (half_of(r[i / 2], i % 2) != 64 * (i / 2) + 8 * p.row + p.column) {
      atomicAdd(&errors[0], 1);
    }
  }
  sm80::ldmatrix_x4<true>(address, r);
  for (int i = 0; i < 8; ++i) {
    const Place p = ldmatrix_trans(lane, i % 2);
    if (half_of(r[i / 2], i % 2) != 64 * (i / 2) + 8 * p.row + p.column) {
      atomicAdd(&errors[1], 1);
    }
  }
  // A[i][k] = [k == i] * (i + 1), so that D[i][j] = (i + 1) * B[i][j], and B names its place.
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    int value[2];
    for (int half = 0; half < 2; ++half) {
      const Place p = mma_a(lane, i, half);
      value[half] = p.row == p.column ? p.row + 1 : 0;
    }
    a[i] = pack(value[0], value[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const Place p = mma_b(lane, i, 0), q = mma_b(lane, i, 1);
    b[i] = pack(8 * p.row + p.column + 1, 8 * q.row + q.column + 1);
  }
  float d[4] = {};
  sm80::mma<Half>(d, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) {
    const Place p = mma_c(lane, i);
    if (d[i] != static_cast<float>((p.row + 1) * (8 * p.row + p.column + 1))) {
      atomicAdd(&errors[2], 1);
    }
  }
}

// One warpgroup: stmatrix, then wgmma m64n64k16 on rows of 128 bytes, 128-byte swizzled, of which K
// fills the first 32.
__global__ void check_sm90_kernel(int* errors) {
#ifdef HALFTONE_SM90A
  __shared__ __align__(1024) __half a[64][64];
  __shared__ __align__(1024) __half b[64][64];
  __shared__ __align__(128) __half stored[4][8][8];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (warp == 0) {
    uint32_t r[4];
    for (int i = 0; i < 4; ++i) {
      const Place p = stmatrix(lane, 0), q = stmatrix(lane, 1);
      r[i] = pack(64 * i + 8 * p.row + p.column, 64 * i + 8 * q.row + q.column);
    }
    sm90::stmatrix_x4(sm90::shared_address(&stored[lane / 8][lane % 8][0]), r[0], r[1], r[2], r[3]);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) {
      if (__half2float((&stored[0][0][0])[i]) != static_cast<float>(i)) {
        atomicAdd(&errors[3], 1);
      }
    }
  }
  // A[i][k] = [k == i % 16], B[k][n] = 64 k + n: D[i][n] = 64 (i % 16) + n.
  for (int i = threadIdx.x; i < 64 * 16; i += 128) {
    const int row = i / 16;
    const int k = i % 16;
    const int place = ((k / 8) ^ (row % 8)) * 8 + k % 8;
    a[row][place] = __float2half(k == row % 16 ? 1.0f : 0.0f);
    b[row][place] = __float2half(static_cast<float>(64 * k + row));
  }
  sm90::fence_proxy_async();
  __syncthreads();
  float d[32];
  sm90::wgmma_fence();
  sm90::wgmma<Half, 64, false, false>(d,
                                      sm90::matrix_descriptor(sm90::shared_address(a), 0, 1024),
                                      sm90::matrix_descriptor(sm90::shared_address(b), 0, 1024),
                                      0);
  sm90::wgmma_commit();
  sm90::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    asm volatile("" : "+f"(d[i])::"memory");
    const Place p = wgmma_d(warp, lane, i);
    if (d[i] != static_cast<float>(64 * (p.row % 16) + p.column)) {
      atomicAdd(&errors[4], 1);
    }
  }
#endif
}

TEST(FragmentsCuda, MatchTheHardware) {
  if (cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  int major = 0;
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  DeviceArray<int> errors(std::vector<int>(5, 0));
  HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());
  check_sm80_kernel<<<1, 32>>>(errors.data());
  HALFTONE_CUDA_CHECK_LAUNCH();
  if (major == 9) {
    check_sm90_kernel<<<1, 128>>>(errors.data());
    HALFTONE_CUDA_CHECK_LAUNCH();
  }
  EXPECT_EQ(errors.to_host(), std::vector<int>(5, 0))
      << "ldmatrix, its transposing form, mma, stmatrix, wgmma";
}

}  // namespace
}  // namespace halftone::fragments
