#include "ops/gemm/gemm_sm90_launch.cuh"

namespace halftone::detail {

void run_wgmma_128x256(const GemmLaunch& launch) {
  launch_wgmma_tile<128, 256, 4, 2, false>(launch);
}

}  // namespace halftone::detail
