// The activations a GEMM applies in its epilogue, and their derivatives, host and device: the same
// bits on both, and the same as the ops of those names. NaN goes through.
#pragma once

#include "core/device.h"
#include "core/math.h"
#include "ops/gemm/gemm.h"

namespace halftone {

template <class T>
HALFTONE_HD inline T relu(T x) {
  return x < T(0) ? T(0) : x;
}

/// 0 at 0.
template <class T>
HALFTONE_HD inline T relu_grad(T x) {
  return x <= T(0) ? T(0) : T(1);
}

}  // namespace halftone
