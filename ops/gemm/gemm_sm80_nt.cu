#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_nt(const GemmLaunch& launch) {
  if (launch.a.format == kBf16) {
    launch_mma_16<BFloat16, false, false>(launch);
  } else {
    launch_mma_16<Half, false, false>(launch);
  }
}

}  // namespace halftone::detail
