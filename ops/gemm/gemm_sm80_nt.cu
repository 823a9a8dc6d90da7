#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_nt(const GemmLaunch& launch) {
  if (launch.a.format == kBf16) {
    launch_mma_plain<BFloat16, false, false>(launch);
  } else {
    launch_mma_plain<Half, false, false>(launch);
  }
}

}  // namespace halftone::detail
