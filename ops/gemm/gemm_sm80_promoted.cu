#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma_promoted(const GemmLaunch& launch) {
  const bool has_intervals = launch.config.order.promote > 0 || launch.a.scales.data != nullptr ||
                             launch.b.scales.data != nullptr;
  if (launch.a.format == kBf16) {
    launch_mma<MmaTraits<BFloat16, 128, false, false, true>>(launch);
  } else if (launch.a.format == kFp16) {
    launch_mma<MmaTraits<Half, 128, false, false, true>>(launch);
  } else if (has_intervals) {
    launch_mma<MmaTraits<float, 128, false, false, true>>(launch);
  } else {
    launch_mma<MmaTraits<float, 128, false, false, false>>(launch);
  }
}

}  // namespace halftone::detail
