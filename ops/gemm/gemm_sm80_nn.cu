#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_nn(const GemmLaunch& launch) {
  if (launch.a.format == kBf16) {
    launch_mma_16<BFloat16, false, true>(launch);
  } else {
    launch_mma_16<Half, false, true>(launch);
  }
}

}  // namespace halftone::detail
