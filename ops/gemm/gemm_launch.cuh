// What the CUDA files of this folder share: a configured problem on its way to a kernel, and one
// function a kernel.
#pragma once

#include <cuda_runtime.h>

#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_epilogue.cuh"

namespace halftone::detail {

/// Operands as the kernel wants them (packed where need be), the output side, and the stream.
struct GemmLaunch {
  GemmOperand a;
  GemmOperand b;
  GemmOutput out;
  int64_t group = 0;  // GemmProblem::group, where there is more than one, of more than one matrix
  int64_t K = 0;
  GemmConfig config;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};

void run_simt(const GemmLaunch& launch);
void run_wmma(const GemmLaunch& launch);  // wmma_naive too
void run_mma(const GemmLaunch& launch);
void run_wgmma(const GemmLaunch& launch);

/// Elements left out between the operand's groups: matrix i lies at i * batch_stride + (i / group)
/// * this.
inline int64_t group_skip(const GemmOperand& x, int64_t group) {
  return group == 0 ? 0 : x.group_stride - group * x.batch_stride;
}

/// How an operand is laid out for a kernel: element type, which dimension is contiguous, both
/// rounded up (zeros beyond).
struct PackedLayout {
  DType dtype = DType::bf16;  // bf16, f16, or f32 (a tf32 operand is rounded to tf32)
  bool k_contiguous = true;
  int64_t mn = 0;
  int64_t k = 0;
};

/// Elements that the packed operand takes, all matrices of the batch together.
int64_t packed_size(const GemmOperand& x, int64_t batch, const PackedLayout& layout);

/// Writes the operand's [mn, k] elements of each matrix to `to`, converted exactly. Returns it as
/// an operand; scales stay.
GemmOperand pack_operand(const GemmOperand& x,
                         bool is_a,
                         int64_t mn,
                         int64_t k,
                         int64_t batch,
                         int64_t group,
                         const PackedLayout& layout,
                         void* to,
                         cudaStream_t stream);

/// Whether the elements that lie next to each other follow K.
inline bool k_contiguous(const GemmOperand& x, bool is_a) { return x.transposed != is_a; }

/// Element (i, k) of a matrix lies at i * mn + k * k of its elements.
struct OperandStrides {
  int64_t mn;
  int64_t k;
};
inline OperandStrides strides_of(const GemmOperand& x, bool is_a) {
  return k_contiguous(x, is_a) ? OperandStrides{x.stride, 1} : OperandStrides{1, x.stride};
}

}  // namespace halftone::detail
