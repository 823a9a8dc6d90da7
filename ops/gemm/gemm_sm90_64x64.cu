#include "ops/gemm/gemm_sm90_launch.cuh"

namespace halftone::detail {

void run_wgmma_64x64(const GemmLaunch& launch) { launch_wgmma_tile<64, 64, 8, 1, false>(launch); }

}  // namespace halftone::detail
