#include "ops/gemm/gemm_sm90_launch.cuh"

namespace halftone::detail {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*,
                                 CUtensorMapDataType,
                                 cuuint32_t,
                                 void*,
                                 const cuuint64_t*,
                                 const cuuint64_t*,
                                 const cuuint32_t*,
                                 const cuuint32_t*,
                                 CUtensorMapInterleave,
                                 CUtensorMapSwizzle,
                                 CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

/// The driver's function, asked for at run time: the product links against no driver library.
EncodeTiled encode_tiled() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    HALFTONE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    if (found == nullptr) {
      throw CudaError("the driver has no cuTensorMapEncodeTiled");
    }
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}

CUtensorMapDataType map_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

}  // namespace

CUtensorMap make_tensor_map(DType dtype,
                            const void* data,
                            int64_t columns,
                            int64_t rows,
                            int64_t batch,
                            int64_t row_stride,
                            int64_t batch_stride,
                            int box_columns,
                            int box_rows) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  // Strides of dimensions of one element mean nothing, yet the driver checks them.
  const int64_t row_bytes = rows == 1 ? (columns * size + 15) / 16 * 16 : row_stride * size;
  const int64_t batch_bytes = batch == 1 ? row_bytes * rows : batch_stride * size;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns),
                              static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes),
                                static_cast<cuuint64_t>(batch_bytes)};
  const cuuint32_t box[] = {
      static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_tiled()(&map,
                                         map_type(dtype),
                                         3,
                                         const_cast<void*>(data),
                                         sizes,
                                         strides,
                                         box,
                                         steps,
                                         CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw CudaError(concat("cuTensorMapEncodeTiled failed with ",
                           static_cast<int>(result),
                           " for [",
                           batch,
                           ", ",
                           rows,
                           ", ",
                           columns,
                           "] of ",
                           dtype,
                           ", strides ",
                           row_stride,
                           " and ",
                           batch_stride));
  }
  return map;
}

void run_wgmma(const GemmLaunch& launch) {
  const GemmTile tile = launch.config.tile;
  if (tile == GemmTile{128, 256}) {
    run_wgmma_128x256(launch);
  } else if (tile == GemmTile{128, 192}) {
    run_wgmma_128x192(launch);
  } else if (tile == GemmTile{128, 128}) {
    run_wgmma_128x128(launch);
  } else if (tile == GemmTile{64, 128}) {
    run_wgmma_64x128(launch);
  } else {
    run_wgmma_64x64(launch);
  }
}

}  // namespace halftone::detail
