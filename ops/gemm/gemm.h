// General matrix multiplication, the one product every linear layer and attention block goes
// through:
//
//   D[M, N] = epilogue( A[M, K] * B[K, N] )      for each matrix of a batch, row-major, FP32
//   accumulation
//
// A GemmProblem is a plain description of one call: pointers, shapes, formats, scales, accumulator
// arithmetic and epilogue. The kernel is chosen by ops/gemm/gemm_config.h; the result's bits depend
// on the problem alone (see KOrder), never on the kernel, the tile or the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/device.h"
#include "core/dtype.h"
#include "core/formats.h"
#include "core/recipe.h"

namespace halftone {

/// Scales of a quantised operand: element (i, k) is worth decode(code) * data[(i / block_mn) *
/// stride_mn + (k / block_k) * stride_k], where i runs along the dimension kept (M of A, N of B)
/// and k along the reduction. One scale a tensor has both blocks at kWhole; one a row has block_mn
/// = 1, block_k = kWhole; 1x128 has (1, 128); 128x128 has (128, 128).
struct GemmScales {
  static constexpr int64_t kWhole = INT64_MAX;
  const float* data = nullptr;  // null: the operand is not scaled
  int64_t block_mn = kWhole;
  int64_t block_k = kWhole;
  int64_t stride_mn = 0;
  int64_t stride_k = 0;
};

/// One operand. Not transposed: A is stored [M, K] and B [K, N]; transposed: A is stored [K, M] and
/// B [N, K]. Row-major either way, `stride` elements from row to row. Storage follows the format:
/// fp32 and tf32 as f32, bf16 and fp16 as 16-bit values, formats of at most 8 bits as one code a
/// byte, any other as f32 values already rounded to the format.
struct GemmOperand {
  const void* data = nullptr;
  Format format = kFp32;
  bool transposed = false;
  int64_t stride = 0;
  int64_t batch_stride = 0;  // elements from matrix to matrix
  int64_t group_stride = 0;  // from group to group, where the batch has groups
  GemmScales scales{};       // shared by the whole batch
};

/// "fp32", "fp16", "hopper16", "ampere16", "hopper8".
std::string_view name_of(Accumulator acc);

enum class Activation : uint8_t { none, relu, gelu };  // gelu: the tanh form

/// What happens to the FP32 product before it is stored, in this order, each step rounded to
/// nearest FP32: + bias[n]; store the pre-activation (rounded to D's dtype); activation of the FP32
/// value; * activation'(pre-activation read from `gradient_of`); + residual; one rounding on store
/// to D. `column_sums` receives the sum over M of the values as stored, by the column tree over
/// panels of 128 rows (core/reduce.h), panels added in ascending order. Where D is f64 every step
/// is in double.
struct GemmEpilogue {
  const void* bias = nullptr;  // [N], dtype bias_dtype
  DType bias_dtype = DType::f32;
  Activation activation = Activation::none;
  void* pre_activation = nullptr;  // [M, N] like D, written where the backward pass needs it
  // [M, N] like D, read: the pre-activation that `activation` was applied to. Where it is given,
  // `activation` names whose derivative multiplies, and is not applied.
  const void* gradient_of = nullptr;
  const void* residual = nullptr;  // [M, N] like D
  void* column_sums = nullptr;     // [N] f32, or f64 where D is; needs batch = 1
};

struct GemmProblem {
  int64_t M = 0;
  int64_t N = 0;
  int64_t K = 0;
  int64_t batch = 1;
  // Matrices of a group: they lie batch_stride apart, whole groups group_stride, which is a
  // multiple of batch_stride (the heads of one sequence after another, say). 0: the batch is one
  // group. Groups can be taken one at a time: how many there are changes no bit.
  int64_t group = 0;
  GemmOperand a{};
  GemmOperand b{};
  void* d = nullptr;
  // f32, bf16 or f16; f64 where both operands are stored as f64, unscaled (gradient checks, CPU).
  DType d_dtype = DType::f32;
  // Elements from row to row and matrix to matrix, for pre_activation, gradient_of and residual
  // too.
  int64_t d_stride = 0;
  int64_t d_batch_stride = 0;
  int64_t d_group_stride = 0;
  // D (f32) += result, as one final FP32 addition. D is not read otherwise.
  bool accumulate = false;
  Accumulator acc = Accumulator::fp32;
  // Partial sums go to FP32 every `promote` of K (0: never; a multiple of 16), and where operands
  // are scaled at the latest every block_k.
  int64_t promote = 0;
  GemmEpilogue epilogue{};
};

/// Elements from the first matrix of a batch to matrix i.
HALFTONE_HD inline int64_t matrix_offset(int64_t i,
                                         int64_t group,
                                         int64_t batch_stride,
                                         int64_t group_stride) {
  return group == 0 ? i * batch_stride : i / group * group_stride + i % group * batch_stride;
}

/// The order in which the products of one output element are added: Tensor Core instructions of
/// `instruction_k` in a row accumulate within a split; splits of `split_k` (a multiple of 128, the
/// last one shorter) are added in ascending order in FP32. A function of the problem alone. With
/// promotion, and with scales always, each interval (see interval_end) starts from zero and is
/// added by acc = fma(partial, scale, acc), acc starting from zero; scale is RN(s_a * s_b), 1 where
/// nothing is scaled. The last instruction of an interval is filled up with zeros. The sum of the
/// splits then goes through the epilogue.
struct KOrder {
  int64_t instruction_k = 0;
  int64_t split_k = 0;  // >= K: one split
  int64_t promote = 0;  // 0: never
  friend bool operator==(const KOrder&, const KOrder&) = default;
};

/// Where the interval that starts at `k` ends: at the next multiple of either operand's block_k,
/// after order.promote products, at the end of the split or at K, whichever comes first.
int64_t interval_end(const GemmProblem& problem, const KOrder& order, int64_t k);

/// The format both operands are converted to, exactly, before they are multiplied: fp16 or bf16
/// where it holds both, else tf32, else fp32 (CUDA cores and Eigen alone).
Format compute_format(const Format& a, const Format& b);

/// Runs the problem on the device its pointers live on, with the kernel that gemm_config chooses or
/// the one named. Throws std::invalid_argument where the problem is malformed, or where the named
/// kernel does not take it.
void gemm(const GemmProblem& problem, const Device& device, std::string_view kernel = "");

}  // namespace halftone
