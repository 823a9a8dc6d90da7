#include "ops/gemm/gemm_sm90_launch.cuh"

namespace halftone::detail {

void run_wgmma_128x128(const GemmLaunch& launch) {
  launch_wgmma_tile<128, 128, 5, 2, true>(launch);
}

}  // namespace halftone::detail
