// cuBLASLt as the peer of gemm_bench: the same problem, epilogue, output type and accumulation,
// with the fastest of the 16 algorithms that its heuristic names, timed here rather than trusted.
// Linked into gemm_bench alone.
#pragma once

#include <cublasLt.h>

#include <array>

#include "core/cuda/check.cuh"
#include "ops/gemm/gemm.h"

namespace halftone {

#define HALFTONE_CUBLAS_CHECK(call)                                                           \
  do {                                                                                        \
    const cublasStatus_t halftone_status_ = (call);                                           \
    if (halftone_status_ != CUBLAS_STATUS_SUCCESS) {                                          \
      throw CudaError(concat(#call, " failed: ", cublasLtGetStatusString(halftone_status_))); \
    }                                                                                         \
  } while (false)

/// One shape. Row-major D = A B is column-major D^T = B^T A^T, so that cuBLAS's A is our B and the
/// reverse.
class CublasLtGemm {
 public:
  explicit CublasLtGemm(const GemmProblem& p) : accumulate_(p.accumulate) {
    const bool is_tf32 = p.a.format == kTf32;
    HALFTONE_CUBLAS_CHECK(cublasLtCreate(&handle_));
    HALFTONE_CUBLAS_CHECK(cublasLtMatmulDescCreate(
        &description_, is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    const GemmEpilogue& e = p.epilogue;
    if (e.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE,
          e.activation == Activation::gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                           : CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, e.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(e.bias_dtype));
    }
    if (e.pre_activation != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, e.pre_activation);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.d_stride);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(p.d_dtype));
    }
    const cudaDataType_t in = p.a.format == kBf16   ? CUDA_R_16BF
                              : p.a.format == kFp16 ? CUDA_R_16F
                                                    : CUDA_R_32F;
    const auto layout = [](cublasLtMatrixLayout_t& made,
                           cudaDataType_t type,
                           int64_t rows,
                           int64_t columns,
                           int64_t stride) {
      HALFTONE_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&made, type, rows, columns, stride));
    };
    layout(layout_b_, in, p.b.transposed ? p.K : p.N, p.b.transposed ? p.N : p.K, p.b.stride);
    layout(layout_a_, in, p.a.transposed ? p.M : p.K, p.a.transposed ? p.K : p.M, p.a.stride);
    layout(layout_d_, type_of(p.d_dtype), p.N, p.M, p.d_stride);
    HALFTONE_CUDA_CHECK(cudaMalloc(&workspace_, kWorkspaceBytes));
    find_algorithms();
  }
  ~CublasLtGemm() {
    cudaFree(workspace_);
    cublasLtMatrixLayoutDestroy(layout_a_);
    cublasLtMatrixLayoutDestroy(layout_b_);
    cublasLtMatrixLayoutDestroy(layout_d_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
  }
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  int num_algorithms() const { return count_; }
  /// False if the algorithm refuses.
  bool run(int algorithm, const GemmProblem& p, cudaStream_t stream) const {
    const float one = 1;
    const float beta = accumulate_ ? 1 : 0;
    return cublasLtMatmul(handle_,
                          description_,
                          &one,
                          p.b.data,
                          layout_b_,
                          p.a.data,
                          layout_a_,
                          &beta,
                          p.d,
                          layout_d_,
                          p.d,
                          layout_d_,
                          &found_[algorithm].algo,
                          workspace_,
                          kWorkspaceBytes,
                          stream) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  static cudaDataType_t type_of(DType dtype) {
    return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    HALFTONE_CUBLAS_CHECK(
        cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value));
  }
  void find_algorithms() {
    cublasLtMatmulPreference_t preference;
    HALFTONE_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    HALFTONE_CUBLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(preference,
                                             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes,
                                             sizeof kWorkspaceBytes));
    HALFTONE_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_,
                                                         description_,
                                                         layout_b_,
                                                         layout_a_,
                                                         layout_d_,
                                                         layout_d_,
                                                         preference,
                                                         16,
                                                         found_.data(),
                                                         &count_));
    cublasLtMatmulPreferenceDestroy(preference);
  }

  bool accumulate_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t layout_a_ = nullptr, layout_b_ = nullptr, layout_d_ = nullptr;
  void* workspace_ = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 16> found_;
  int count_ = 0;
};

}  // namespace halftone
