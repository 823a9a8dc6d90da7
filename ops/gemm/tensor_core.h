// The arithmetic of a Tensor Core, bit for bit. One instruction adds n products and an addend:
// every product is exact and has the exponent ea + eb of its factors (its significand, in [0, 4),
// is not normalised); all n + 1 terms are aligned to the largest exponent and truncated toward zero
// to F fraction bits below it; the sum of those is exact; the result is truncated toward zero.
// Sources: Fasi et al. 2021; MMA-Sim, arXiv 2511.10909; confirmed on an H200 by
// tests/gpu/tensor_core_vectors.cu.
#pragma once

#include <cstdint>

#include "core/formats.h"
#include "ops/gemm/gemm.h"

namespace halftone {

/// One instruction of a unit.
struct TensorCoreUnit {
  int products = 16;              // per instruction (step of it)
  int fraction_bits = 25;         // F: what is kept of every term below the largest exponent
  int result_fraction_bits = 23;  // of the FP32 result
  bool fp16_result = false;       // instead: the exact sum rounded once to FP16, to nearest even
  Format a =
      kFp16;  // what the operands are converted to, exactly: subnormals keep its smallest exponent
  Format b = kFp16;
};

/// The unit that multiplies operands of these formats with acc = fp16, hopper16, ampere16 or
/// hopper8. Throws std::invalid_argument where that accumulator does not take them.
TensorCoreUnit tensor_core_unit(Accumulator acc, const Format& a, const Format& b);

/// One instruction on one output element: c + sum over k < unit.products of a[k] * b[k]. Operands
/// are values of unit.a and unit.b; c is FP32, or a value of FP16 where the result is. A reference
/// to read and to test against; the GEMM uses TensorCoreStrip.
float tensor_core_step(const TensorCoreUnit& unit, const float* a, const float* b, float c);

}  // namespace halftone
