#include "ops/gemm/gemm_sm80_launch.cuh"

namespace halftone::detail {
namespace {

/// Whether every interval ends after a multiple of `k`.
bool intervals_are_multiples_of(int64_t k, const GemmLaunch& launch) {
  bool are = launch.config.order.promote % k == 0;
  for (const int64_t block : {launch.a.scales.block_k, launch.b.scales.block_k}) {
    are = are && (block == GemmScales::kWhole || block % k == 0);
  }
  return are;
}

template <class In, int kInterval>
using Promoted = MmaTraits<In, 128, 128, false, false, kInterval>;

}  // namespace

void run_mma_promoted(const GemmLaunch& launch) {
  if (launch.a.format == kTf32) {
    launch_mma<Promoted<float, 2>>(launch);  // 16 of K are two instructions
  } else if (launch.a.format == kBf16) {
    launch_mma<Promoted<BFloat16, 1>>(launch);
  } else if (intervals_are_multiples_of(128, launch) && fits<Promoted<Half, 8>>()) {
    launch_mma<Promoted<Half, 8>>(launch);
  } else if (intervals_are_multiples_of(32, launch) && fits<Promoted<Half, 2>>()) {
    launch_mma<Promoted<Half, 2>>(launch);
  } else {
    launch_mma<Promoted<Half, 1>>(launch);  // any interval, on any device
  }
}

}  // namespace halftone::detail
