// A GEMM made for a test: random operands of any format in memory as a GemmProblem wants them (rows
// further apart than they are wide, NaN in the gaps, guard bytes behind the output), and the same
// product in double.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/gemm/gemm.h"
#include "tests/support/guarded.h"

namespace halftone::testing {

/// What a case asks for; the rest of the problem follows.
struct GemmSpec {
  int64_t M = 1, N = 1, K = 1, batch = 1;
  int64_t group = 0;  // room for one more matrix between groups
  Format a = kFp32, b = kFp32;
  bool a_transposed = false, b_transposed = false;
  DType d = DType::f32;
  int64_t row_gap = 0;  // elements between the end of a row and the next
  bool broadcast_b = false;
  // Blocks of the scales, 0: none.
  int64_t a_block_mn = 0, a_block_k = 0, b_block_mn = 0, b_block_k = 0;
  int64_t promote = 0;
  Accumulator acc = Accumulator::fp32;
  bool bias = false, pre_activation = false, gradient = false, residual = false;
  bool column_sums = false, accumulate = false;
  Activation activation = Activation::none;
  DType bias_dtype = DType::f32;
  uint32_t seed = 1;
};

/// A matrix per batch entry, in memory. Starts as all-one bytes, NaN in every format that has one,
/// with guards around it.
class StoredMatrix {
 public:
  StoredMatrix() = default;
  /// After `group` matrices (0: never) the room of one is left free.
  StoredMatrix(
      DType dtype, int64_t rows, int64_t columns, int64_t gap, int64_t batch, int64_t group = 0);

  /// `format` matters where the dtype does not say it: codes of one byte, and FP32 that stands for
  /// another format.
  double get(int64_t batch, int64_t row, int64_t column, const Format* format = nullptr) const;
  void set(
      int64_t batch, int64_t row, int64_t column, double value, const Format* format = nullptr);

  /// Whether every element between the rows still holds what the constructor wrote.
  bool gaps_intact() const;
  StoredMatrix copy() const;
  /// Of an element among all.
  int64_t index(int64_t i, int64_t row, int64_t column) const {
    return matrix_offset(i, group, batch_stride, group_stride) + row * stride + column;
  }
  void* data() { return bytes_->data(); }
  const Guarded<uint8_t>& bytes() const { return *bytes_; }

  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0, batch = 0, group = 0;
  int64_t stride = 0, batch_stride = 0, group_stride = 0;

 private:
  std::unique_ptr<Guarded<uint8_t>> bytes_;
};

class GemmCase {
 public:
  explicit GemmCase(const GemmSpec& spec);
  GemmCase(const GemmCase&) = delete;

  GemmSpec spec;
  StoredMatrix a, b, d, pre, gradient, residual, bias;
  std::vector<float> a_scales, b_scales;
  std::vector<float> column_sums;
  GemmProblem problem;

  /// Operand values as decoded, unscaled: (m, k) and (k, n).
  double a_at(int64_t batch, int64_t m, int64_t k) const;
  double b_at(int64_t batch, int64_t k, int64_t n) const;
  float scale(int64_t m, int64_t n, int64_t k) const;  // RN(s_a * s_b)

  /// The product before the epilogue in double, and the sum of the magnitudes of its terms.
  struct Product {
    double value = 0, magnitude = 0;
  };
  Product product(int64_t batch, int64_t m, int64_t n) const;

  /// Scalar replays, to the bit, of the orders of addition that the kernels promise: gemm_eigen's
  /// (where the CPU has fused multiply-adds) and the KOrder's with tensor_core_step.
  float replay_eigen(int64_t batch, int64_t m, int64_t n) const;
  float replay_emulated(int64_t batch, int64_t m, int64_t n) const;

  /// The epilogue on the value of a product, every step in T (double or float): what D holds before
  /// it is rounded; the pre-activation in `pre`.
  template <class T>
  T finish(T product, int64_t batch, int64_t m, int64_t n, T* pre = nullptr) const;

 private:
  StoredMatrix before_;  // D before the product, where it accumulates
};

}  // namespace halftone::testing
