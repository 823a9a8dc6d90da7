// How the CPU kernels read an operand: runs of stored elements decoded exactly to FP32 (TF32
// operands, stored unrounded, are rounded to nearest even here), and blocks of them that a kernel
// reads in place where nothing has to be decoded or padded.
#pragma once

#include <cstdint>

#include "ops/gemm/gemm.h"

namespace halftone::detail {

/// The scale of the elements (i, k), 1 where the operand has none.
inline float scale_at(const GemmScales& scales, int64_t i, int64_t k) {
  return scales.data == nullptr ? 1.0f
                                : scales.data[i / scales.block_mn * scales.stride_mn +
                                              k / scales.block_k * scales.stride_k];
}

/// Rows and columns of a block are those of storage: `runs` runs of `length` consecutive elements,
/// `stride` apart.
template <class T>
struct GemmBlock {
  const T* data;
  int64_t stride;
};

/// One operand of a checked problem. `T` is double where the operands are stored as f64, else
/// float.
template <class T>
class OperandReader {
 public:
  /// `is_a` says which dimension of storage is K.
  /// `group` is the problem's.
  OperandReader(const GemmOperand& operand, bool is_a, int64_t group);

  /// Whether consecutive elements in storage lie along K (else along the dimension kept).
  bool k_contiguous() const { return k_contiguous_; }

  /// Decodes `length` consecutive elements from (row, column) of storage of matrix `batch`.
  void read(int64_t batch, int64_t row, int64_t column, int64_t length, T* out) const;

  /// The block of elements [i0, i0 + count) x [k0, k0 + depth), the dimension kept first, in the
  /// order of storage and with zeros from `count` to `padded`. Points into the operand where it
  /// can, else into `scratch` of padded * depth elements.
  GemmBlock<T> block(int64_t batch,
                     int64_t i0,
                     int64_t count,
                     int64_t padded,
                     int64_t k0,
                     int64_t depth,
                     T* scratch) const;

 private:
  /// Elements from the first to (row, column) of storage of matrix `batch`.
  int64_t offset(int64_t batch, int64_t row, int64_t column) const {
    return matrix_offset(batch, group_, operand_.batch_stride, operand_.group_stride) +
           row * operand_.stride + column;
  }

  enum class Storage : uint8_t { as_is, tf32, bf16, fp16, codes };

  const GemmOperand& operand_;
  int64_t group_;
  bool k_contiguous_;
  Storage storage_;
};

extern template class OperandReader<float>;
extern template class OperandReader<double>;

}  // namespace halftone::detail
