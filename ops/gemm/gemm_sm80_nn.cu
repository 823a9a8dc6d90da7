#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_nn(const GemmLaunch& launch) {
  if (launch.a.format == kBf16) {
    launch_mma_plain<BFloat16, false, true>(launch);
  } else {
    launch_mma_plain<Half, false, true>(launch);
  }
}

}  // namespace halftone::detail
