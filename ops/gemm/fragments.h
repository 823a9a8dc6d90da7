// Which lane of a warp holds which element, for the matrix instructions this project uses:
// constexpr, for host and device alike. `register_` counts the 32-bit registers a lane gives; two
// 16-bit elements share one, the first in the low half. The device checks every function against
// the hardware (tests/ops/fragments_cuda_test.cu); `gemm_bench --fragments` prints them. Source:
// PTX ISA 9.0, sections 9.7.15.5 (mma), 9.7.15.6.15 (ldmatrix), 9.7.16.5 (wgmma).
#pragma once

#include "core/device.h"

namespace halftone::fragments {

/// Row and column of an element within its matrix.
struct Place {
  int row;
  int column;
  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// mma.sync m16n8k16, 16-bit A [16, 16]: element `half` of register 0..3 of a lane.
HALFTONE_HD constexpr Place mma_a(int lane, int register_, int half) {
  return {lane / 4 + register_ % 2 * 8, lane % 4 * 2 + half + register_ / 2 * 8};
}

/// mma.sync m16n8k16, 16-bit B [16, 8]: element `half` of register 0..1.
HALFTONE_HD constexpr Place mma_b(int lane, int register_, int half) {
  return {lane % 4 * 2 + half + register_ * 8, lane / 4};
}

/// mma.sync m16n8, FP32 C and D [16, 8]: register 0..3. Lane 13 holds (3, 2), (3, 3), (11, 2), (11,
/// 3).
HALFTONE_HD constexpr Place mma_c(int lane, int register_) {
  return {lane / 4 + register_ / 2 * 8, lane % 4 * 2 + register_ % 2};
}

/// ldmatrix of one 8 x 8 matrix of 16-bit elements, stored by rows: element `half` of the register.
HALFTONE_HD constexpr Place ldmatrix(int lane, int half) { return {lane / 4, lane % 4 * 2 + half}; }

/// The transposing form: the same registers hold the matrix transposed.
HALFTONE_HD constexpr Place ldmatrix_trans(int lane, int half) {
  return {lane % 4 * 2 + half, lane / 4};
}

/// stmatrix is ldmatrix's inverse.
HALFTONE_HD constexpr Place stmatrix(int lane, int half) { return ldmatrix(lane, half); }

/// wgmma m64nN, FP32 accumulator [64, N]: register 0..N/2-1 of a lane of warp 0..3 of the
/// warpgroup.
HALFTONE_HD constexpr Place wgmma_d(int warp, int lane, int register_) {
  const Place within = mma_c(lane, register_ % 4);
  return {warp * 16 + within.row, register_ / 4 * 8 + within.column};
}

}  // namespace halftone::fragments
