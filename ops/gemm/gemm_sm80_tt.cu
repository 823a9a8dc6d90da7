#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_tt(const GemmLaunch& launch) {
  if (launch.a.format == kBf16) {
    launch_mma_plain<BFloat16, true, false>(launch);
  } else {
    launch_mma_plain<Half, true, false>(launch);
  }
}

}  // namespace halftone::detail
