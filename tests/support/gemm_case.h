// A GEMM made for a test: random operands of any format in memory as a GemmProblem wants them (rows
// further apart than they are wide, NaN in the gaps, guard bytes behind the output), and the same
// product in double.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "ops/gemm/gemm.h"

namespace halftone::testing {

/// What a case asks for; the rest of the problem follows.
struct GemmSpec {
  int64_t M = 1, N = 1, K = 1, batch = 1;
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

/// Bytes in memory, with a guard region behind them that must not change.
class GuardedBytes {
 public:
  GuardedBytes() = default;
  GuardedBytes(size_t size, uint8_t fill);
  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return size_; }
  bool guard_intact() const;

 private:
  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
};

/// One stored matrix per batch entry.
struct StoredMatrix {
  GuardedBytes bytes;
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0, stride = 0, batch_stride = 0;

  StoredMatrix() = default;
  /// Every byte 0xFF: NaN in every format that has one.
  StoredMatrix(DType dtype, int64_t rows, int64_t columns, int64_t gap, int64_t batch);
  double get(int64_t batch, int64_t row, int64_t column, const Format* format = nullptr) const;
  void set(int64_t batch, int64_t row, int64_t column, float value, const Format* format = nullptr);
  /// Whether every byte between rows, and behind the last one, still holds what the constructor
  /// wrote.
  bool gaps_intact(int64_t batch) const;
};

class GemmCase {
 public:
  explicit GemmCase(const GemmSpec& spec);
  GemmCase(const GemmCase&) = delete;

  GemmSpec spec;
  StoredMatrix a, b, d, pre, gradient, residual, bias;
  std::vector<float> a_scales, b_scales;
  std::vector<double> column_sums;  // f32 or f64 in memory
  GemmProblem problem;

  /// Operand values as decoded, unscaled: (m, k) and (k, n).
  double a_at(int64_t batch, int64_t m, int64_t k) const;
  double b_at(int64_t batch, int64_t k, int64_t n) const;
  float scale(int64_t m, int64_t n, int64_t k) const;  // RN(s_a * s_b)
  double d_before(int64_t batch, int64_t m, int64_t n) const { return before_.get(batch, m, n); }

  /// The product before the epilogue in double, and the sum of the magnitudes of its terms.
  struct Product {
    double value = 0, magnitude = 0;
  };
  Product product(int64_t batch, int64_t m, int64_t n) const;

  /// The epilogue in double on the value of a product: what D should hold before its rounding; the
  /// pre-activation in `pre`.
  double finish(double product, int64_t batch, int64_t m, int64_t n, double* pre = nullptr) const;

 private:
  StoredMatrix before_;  // D before the product, where it accumulates
};

}  // namespace halftone::testing
