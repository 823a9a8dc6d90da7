// The host side of the wgmma kernel: tensor maps, the persistent grid and the launch. Each
// gemm_sm90_*.cu instantiates one tile.
#pragma once

#include <algorithm>

#include "core/cuda/check.cuh"
#include "ops/gemm/gemm_launch.cuh"
#include "ops/gemm/gemm_sm90.cuh"

namespace halftone::detail {

/// A 3-D map (contiguous, row, matrix) with 128-byte swizzle; outside the tensor reads give zero
/// and writes are dropped.
CUtensorMap make_tensor_map(DType dtype,
                            const void* data,
                            int64_t columns,
                            int64_t rows,
                            int64_t batch,
                            int64_t row_stride,
                            int64_t batch_stride,
                            int box_columns,
                            int box_rows);

/// A matrix that serves the whole batch has a map of one matrix.
template <class T>
CUtensorMap operand_map(
    const GemmOperand& x, bool mn_major, int64_t mn, int64_t k, int64_t batch, int box_mn) {
  const int64_t matrices = x.batch_stride == 0 ? 1 : batch;
  constexpr DType kDtype = kDTypeOf<typename T::In>;
  return mn_major ? make_tensor_map(
                        kDtype, x.data, mn, k, matrices, x.stride, x.batch_stride, 64, box_mn)
                  : make_tensor_map(
                        kDtype, x.data, k, mn, matrices, x.stride, x.batch_stride, T::kK, box_mn);
}

template <class T>
int max_clusters(int cluster) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(T::kThreads);
  config.dynamicSmemBytes = T::kSharedBytes;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  HALFTONE_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, gemm_wgmma_kernel<T>, &config));
  return clusters;
}

/// setmaxnreg hands registers over within what the block got at entry.
template <class T>
void check_registers() {
  cudaFuncAttributes attributes{};
  HALFTONE_CUDA_CHECK(cudaFuncGetAttributes(&attributes, gemm_wgmma_kernel<T>));
  if (T::kMovesRegisters && attributes.numRegs != 168) {
    throw std::logic_error(concat("gemm: the wgmma kernel was compiled to ",
                                  attributes.numRegs,
                                  " registers at entry, not 168"));
  }
}

template <class T>
void launch_wgmma(const GemmLaunch& launch) {
  const GemmOutput& out = launch.out;
  WgmmaArgs args;
  args.out = out;
  args.K = static_cast<int>(launch.K);
  args.split_k = static_cast<int>(launch.config.order.split_k);
  args.splits = static_cast<int>(launch.config.splits);
  args.cluster = launch.config.cluster;
  args.tiles_m = ((out.M + T::kM - 1) / T::kM + args.cluster - 1) / args.cluster * args.cluster;
  args.tiles_n = (out.N + T::kN - 1) / T::kN;
  args.a_batched = launch.a.batch_stride != 0;
  args.b_batched = launch.b.batch_stride != 0;
  // A map counts in batch strides, of which a group stride is a multiple.
  const auto skip = [](int64_t elements, int64_t batch_stride) {
    return elements == 0 ? 0 : static_cast<int>(elements / batch_stride);
  };
  args.a_skip = skip(group_skip(launch.a, launch.group), launch.a.batch_stride);
  args.b_skip = skip(group_skip(launch.b, launch.group), launch.b.batch_stride);
  const auto matrices = [&](int64_t skip) {
    return out.batch + (launch.group == 0 ? 0 : (out.batch / launch.group - 1) * skip);
  };
  const bool is_simple =
      out.residual == nullptr && out.gradient_of == nullptr &&
      (T::kPingPong || (out.activation == Activation::none && out.pre_activation == nullptr));
  args.store = out.is_plain() ? StorePath::direct
               : is_simple && out.d_dtype == kDTypeOf<typename T::In> &&
                       sizeof(typename T::In) == 2 && out.vectors && out.N % 8 == 0
                   ? StorePath::packed
                   : StorePath::staged;
  const CUtensorMap map_a = operand_map<T>(
      launch.a, T::kAmn, out.M, args.K, matrices(args.a_skip), T::kAmn ? T::kK : T::kM);
  const CUtensorMap map_b = operand_map<T>(
      launch.b, T::kBmn, out.N, args.K, matrices(args.b_skip), T::kBmn ? T::kK / 2 : T::kN / 2);
  const auto output_map = [&](void* data) {
    return args.store == StorePath::packed && data != nullptr
               ? make_tensor_map(out.d_dtype,
                                 data,
                                 out.N,
                                 out.M,
                                 matrices(out.d_skip),
                                 out.d_stride,
                                 out.d_batch_stride,
                                 64,
                                 64)
               : CUtensorMap{};
  };
  const CUtensorMap map_d = output_map(out.d);
  const CUtensorMap map_pre_activation = output_map(out.pre_activation);
  static const int clusters_of[3] = {
      0,
      [] {
        HALFTONE_CUDA_CHECK(cudaFuncSetAttribute(
            gemm_wgmma_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes));
        check_registers<T>();
        return max_clusters<T>(1);
      }(),
      max_clusters<T>(2)};
  const int units = args.tiles_m / args.cluster * args.tiles_n * out.batch * args.splits;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min(units, clusters_of[args.cluster]) * args.cluster));
  config.blockDim = dim3(T::kThreads);
  config.dynamicSmemBytes = T::kSharedBytes;
  config.stream = launch.stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(args.cluster), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  HALFTONE_CUDA_CHECK(cudaLaunchKernelEx(
      &config, gemm_wgmma_kernel<T>, map_a, map_b, map_d, map_pre_activation, args));
}

/// A tile's instantiations by type and layout.
template <int kM, int kN, int kStages, int kConsumers, bool kPingPong>
void launch_wgmma_tile(const GemmLaunch& launch) {
  const bool a_k = k_contiguous(launch.a, true);
  const bool b_k = k_contiguous(launch.b, false);
  const auto with = [&]<class In, bool kAmn, bool kBmn>() {
    launch_wgmma<WgmmaTraits<In, kM, kN, kStages, kConsumers, kPingPong, kAmn, kBmn>>(launch);
  };
  const auto with_layout = [&]<class In>() {
    a_k ? (b_k ? with.template operator()<In, false, false>()
               : with.template operator()<In, false, true>())
        : (b_k ? with.template operator()<In, true, false>()
               : with.template operator()<In, true, true>());
  };
  if (launch.a.format == kBf16) {
    with_layout.template operator()<BFloat16>();
  } else if (launch.a.format == kFp16) {
    with_layout.template operator()<Half>();
  } else {
    with.template operator()<float, false, false>();  // tf32, packed K-major
  }
}

// One translation unit each.
void run_wgmma_128x256(const GemmLaunch& launch);
void run_wgmma_128x192(const GemmLaunch& launch);
void run_wgmma_128x128(const GemmLaunch& launch);  // ping-pong
void run_wgmma_64x128(const GemmLaunch& launch);
void run_wgmma_64x64(const GemmLaunch& launch);

}  // namespace halftone::detail
