#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {

void run_mma(const GemmLaunch& launch) {
  const bool has_intervals = launch.config.order.promote > 0 || launch.a.scales.data != nullptr ||
                             launch.b.scales.data != nullptr;
  if (has_intervals) {
    run_mma_promoted(launch);
    return;
  }
  if (launch.a.format == kTf32) {
    launch_mma_plain<float, false, false>(launch);
    return;
  }
  const bool a_k = k_contiguous(launch.a, true);
  const bool b_k = k_contiguous(launch.b, false);
  const auto run = a_k ? (b_k ? run_mma_nt : run_mma_nn) : (b_k ? run_mma_tt : run_mma_tn);
  run(launch);
}

}  // namespace halftone::detail
