// The host side of the mma kernel. Each gemm_sm80_*.cu instantiates one group of layouts.
#pragma once

#include "core/cuda/check.cuh"
#include "ops/gemm/gemm_launch.cuh"
#include "ops/gemm/gemm_sm80.cuh"

namespace halftone::detail {

template <class T>
constexpr int kSharedBytes = T::kStages* T::kStageBytes + Promotion<T>::kBytes;

/// Whether a block of the current device may have the shared memory of the kernel.
template <class T>
bool fits() {
  int device = 0;
  int limit = 0;
  HALFTONE_CUDA_CHECK(cudaGetDevice(&device));
  HALFTONE_CUDA_CHECK(
      cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return kSharedBytes<T> <= limit;
}

template <class T>
void launch_mma(const GemmLaunch& launch) {
  constexpr int64_t kSize = sizeof(typename T::In);
  const auto operand = [&](const GemmOperand& x) {
    return MmaOperand{static_cast<const uint8_t*>(x.data),
                      x.stride * kSize,
                      x.batch_stride * kSize,
                      group_skip(x, launch.group) * kSize,
                      x.scales};
  };
  MmaArgs args;
  args.out = launch.out;
  args.a = operand(launch.a);
  args.b = operand(launch.b);
  args.K = static_cast<int>(launch.K);
  args.split_k = static_cast<int>(launch.config.order.split_k);
  args.promote = static_cast<int>(launch.config.order.promote);
  args.tiles_m = (launch.out.M + T::kM - 1) / T::kM;
  args.tiles_n = (launch.out.N + T::kN - 1) / T::kN;
  args.direct = launch.out.is_plain();

  static const bool ready = [&] {
    HALFTONE_CUDA_CHECK(cudaFuncSetAttribute(
        gemm_mma_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<T>));
    return true;
  }();
  (void)ready;
  const int64_t blocks =
      int64_t{args.tiles_m} * args.tiles_n * launch.out.batch * launch.config.splits;
  gemm_mma_kernel<T>
      <<<static_cast<unsigned>(blocks), T::kThreads, kSharedBytes<T>, launch.stream>>>(args);
  HALFTONE_CUDA_CHECK_LAUNCH();
}

/// Products without intervals: tiles of 128 x 256 where N and the grid are large enough, and the
/// device's shared memory too.
template <class In, bool kAmn, bool kBmn>
void launch_mma_plain(const GemmLaunch& launch) {
  using Wide = MmaTraits<In, 128, 256, kAmn, kBmn, 0>;
  if (launch.config.tile.n == Wide::kN && fits<Wide>()) {
    launch_mma<Wide>(launch);
  } else {
    launch_mma<MmaTraits<In, 128, 128, kAmn, kBmn, 0>>(launch);
  }
}

// One translation unit each.
void run_mma_nt(const GemmLaunch& launch);        // A and B K-major
void run_mma_nn(const GemmLaunch& launch);        // B MN-major
void run_mma_tt(const GemmLaunch& launch);        // A MN-major
void run_mma_tn(const GemmLaunch& launch);        // both MN-major
void run_mma_promoted(const GemmLaunch& launch);  // K-major, with intervals

}  // namespace halftone::detail
