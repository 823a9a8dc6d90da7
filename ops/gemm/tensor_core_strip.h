// Many Tensor Core instructions at once, the same bits as tensor_core_step: 16 output elements of
// one row advance together. Operands are packed as floats beside the exponent each takes part in
// the alignment with.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/gemm/tensor_core.h"

namespace halftone {

inline constexpr int64_t kStripColumns = 16;

// Markers in place of an exponent. The sum of any two of them and of exponents fits int16, and a
// NaN or infinity beside a zero still stands out.
inline constexpr int16_t kZeroExponent = -10000;
inline constexpr int16_t kNonFiniteExponent = 15000;

/// The exponent a value of `format` brings into the alignment, or a marker.
inline int16_t alignment_exponent(float x, const Format& format) {
  const int field = static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xFF);
  const int exponent = std::max(field - 127, 1 - format.bias());
  const int finite = x == 0.0f ? kZeroExponent : exponent;
  return static_cast<int16_t>(field == 255 ? kNonFiniteExponent : finite);
}

/// Runs `instructions` of the unit in a row on 16 output elements c: row vector a times the columns
/// of b.
///   a, a_exponents  [instructions * unit.products]
///   b, b_exponents  [instructions * unit.products][16]
///   c               [16], addend of the first instruction and result of the last
void tensor_core_strip(const TensorCoreUnit& unit,
                       int64_t instructions,
                       const float* a,
                       const int16_t* a_exponents,
                       const float* b,
                       const int16_t* b_exponents,
                       float* c);

}  // namespace halftone
