#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_tn(const GemmLaunch& launch) {
  if (launch.a.format == kBf16) {
    launch_mma_plain<BFloat16, true, true>(launch);
  } else {
    launch_mma_plain<Half, true, true>(launch);
  }
}

}  // namespace halftone::detail
