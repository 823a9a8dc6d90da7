// From a high-precision matrix to one operand of a GEMM: values rounded to a format, with the
// scales that the precision asks for. Scales run along K, so the two products that read a matrix
// along different axes quantise it twice, each time from the high-precision source; where blocks
// are square or cover the whole tensor one quantisation serves both. Source: design of the scales
// in core/scales.h (OCP MX 1.0; DeepSeek-V3, arXiv:2412.19437, section 3.3; NVFP4).
#pragma once

#include <bit>
#include <string>

#include "core/random.h"
#include "core/recipe.h"
#include "core/tensor.h"
#include "ops/gemm/gemm.h"

namespace halftone {

/// The largest magnitudes of the last optimizer steps, for delayed scaling. What changes from step
/// to step is in memory.
struct AmaxHistory {
  Tensor amax;     // f32 [history], a ring
  Tensor pushed;   // i64 [1]: how many were pushed since the start
  Tensor pending;  // f32 [1]: the largest of this step's micro-batches so far, -1 if none
};

AmaxHistory make_amax_history(int length, Device device);
/// Ends an optimizer step: moves `pending`, if there is one, into the history.
void push_amax(AmaxHistory& history);

/// A matrix [rows, columns] as codes or rounded values in its own layout, and FP32 scales [K
/// blocks, kept blocks]. Blocks are block_k elements along K and block_mn along the dimension kept;
/// the pitch of the scales is a multiple of 4.
struct QuantizedMatrix {
  Tensor values;  // stored as GemmOperand says for the format
  Tensor scales;  // f32 [ceil(K / block_k), pitch]; undefined where nothing is scaled
  Format format = kFp32;
  int k_axis = 1;
  int64_t block_mn = GemmScales::kWhole;
  int64_t block_k = GemmScales::kWhole;

  /// The matrix as A [M, K] or B [K, N] of a GEMM whose K is the axis it was quantised along.
  GemmOperand as_a() const;
  GemmOperand as_b() const;
  /// The same for the other axis; only where the scales serve both (see serves_both_axes).
  QuantizedMatrix along(int k_axis) const;
};

/// Whether one quantisation serves products along either axis: no scales, one scale a tensor, or
/// square blocks.
bool serves_both_axes(const OperandPrecision& precision);

struct QuantizeOptions {
  AmaxHistory* history = nullptr;  // needed by delayed scaling, unused otherwise
  bool observe =
      false;  // delayed: this tensor's amax joins the history (training; evaluation never does)
  RandomSource random;  // needed by stochastic rounding, whose draws belong to `purpose`
  std::string purpose;
  MemoryCategory category = MemoryCategory::activations;
};

/// Rounds x [rows, columns] (f32, bf16, f16) to one operand. k_axis says which axis the product
/// sums over. No copy is made where x is stored in the format already. Scaling follows the
/// precision; a non-finite value makes its block's scale NaN. Throws std::invalid_argument on a
/// wrong rank, dtype or a missing history or random source.
QuantizedMatrix quantize(const Tensor& x,
                         int k_axis,
                         const OperandPrecision& precision,
                         const QuantizeOptions& options = {});

/// RN(value * scale) for every element, [rows, columns] in FP32: what the operand stands for.
Tensor dequantize(const QuantizedMatrix& q);

namespace detail {

/// How storage is cut into blocks that share a scale.
struct BlockGrid {
  int64_t rows, columns;
  int64_t block_rows, block_columns;  // at least 1, at most the matrix
  int64_t row_blocks, column_blocks;
  int64_t row_stride, column_stride;  // of the scales, from block to block

  HALFTONE_HD int64_t num_blocks() const { return row_blocks * column_blocks; }
};

/// The rest of quantize on a GPU: scales (where there are any) and values.
void quantize_cuda(const Tensor& x,
                   const OperandPrecision& precision,
                   const QuantizeOptions& options,
                   const BlockGrid& grid,
                   const QuantizedMatrix& q);
void push_amax_cuda(AmaxHistory& history);

/// The amax that delayed scaling goes by, of `current` and the history; with `observe` the current
/// one joins the step's. A non-finite current amax is never hidden by a finite history.
struct DelayedAmax {
  const float* amax;
  int64_t length;
  const int64_t* pushed;
  float* pending;
  bool observe;

  HALFTONE_HD float operator()(float current) const {
    if ((std::bit_cast<uint32_t>(current) & 0x7fffffffu) >= 0x7f800000u) {
      return current;
    }
    if (observe && current > *pending) {
      *pending = current;
    }
    const int64_t known = *pushed < length ? *pushed : length;
    float largest = known == 0 ? current : amax[0];
    for (int64_t i = 1; i < known; ++i) {
      largest = amax[i] > largest ? amax[i] : largest;
    }
    return largest;
  }
};

inline DelayedAmax delayed_amax(const AmaxHistory& history, bool observe) {
  return {history.amax.data<float>(),
          history.amax.numel(),
          history.pushed.data<int64_t>(),
          history.pending.data<float>(),
          observe};
}

/// Moves `pending`, if there is one, into the ring.
HALFTONE_HD inline void push_amax(float* amax, int64_t length, int64_t* pushed, float* pending) {
  if (*pending < 0.0f) {
    return;
  }
  amax[*pushed % length] = *pending;
  ++*pushed;
  *pending = -1.0f;
}

}  // namespace detail

}  // namespace halftone
