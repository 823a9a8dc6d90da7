// A GEMM on a GPU, from the checked problem to the last launch: choose, pack what the kernel cannot
// read as it is, multiply, add the partial sums of the splits, sum columns. Everything goes to the
// current stream; scratch comes from the memory pool, whose reuse that stream orders.
#include <algorithm>
#include <mutex>
#include <vector>

#include "core/cuda/check.cuh"
#include "core/cuda/reduce.cuh"
#include "core/integer.h"
#include "core/storage.h"
#include "ops/gemm/gemm_cpu.h"
#include "ops/gemm/gemm_launch.cuh"

namespace halftone::detail {
namespace {

const DeviceCaps& caps_of(int device) {
  static std::mutex mutex;
  static std::vector<DeviceCaps> known;
  const std::lock_guard lock(mutex);
  while (static_cast<int>(known.size()) <= device) {
    const int index = static_cast<int>(known.size());
    int major = 0, minor = 0, multiprocessors = 0;
    HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
    HALFTONE_CUDA_CHECK(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, index));
    known.push_back({10 * major + minor, multiprocessors});
  }
  return known[device];
}

// ---- Partial sums. One thread eight columns; splits in ascending order, then the epilogue.

__global__ void __launch_bounds__(256)
    gemm_fix_up_kernel(const __grid_constant__ GemmOutput out, int splits) {
  const int groups = static_cast<int>(out.partial_stride / 8);
  const int64_t total = int64_t{groups} * out.M * out.batch;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < total;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int column = static_cast<int>(i % groups) * 8;
    const int row = static_cast<int>(i / groups % out.M);
    const int matrix = static_cast<int>(i / groups / out.M);
    float v[8];
    float other[8];
    load_8(out.partial(0, matrix, row, column), DType::f32, 0, true, 8, v);
    for (int split = 1; split < splits; ++split) {
      load_8(out.partial(split, matrix, row, column), DType::f32, 0, true, 8, other);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v[j] += other[j];
      }
    }
    if (column < out.N) {
      float bias[8];
      load_bias(out, column, bias);
      finish_8(out, out.place(matrix), row, column, bias, v);
    }
  }
}

// ---- Column sums of the values as stored: the column tree over a panel of 128 rows and 32 columns
// a block, panels in ascending order.

__global__ void __launch_bounds__(256) gemm_panel_sums_kernel(
    const void* d, DType dtype, int64_t stride, int M, int N, float* panels) {
  __shared__ float sums[8][33];
  const int column = blockIdx.x * 32 + threadIdx.x % 32;
  const int group = threadIdx.x / 32;  // of 16 rows
  const int row = blockIdx.y * kColumnPanel + group * 16;
  if (column < N) {
    sums[group][threadIdx.x % 32] = device::sixteen_row_sum<float>(
        max(0, M - row), [&](int r) { return load_value(d, dtype, (row + r) * stride + column); });
  }
  __syncthreads();
  if (group == 0 && column < N) {
    panels[int64_t{blockIdx.y} * N + column] = device::panel_of_sixteens(&sums[0][threadIdx.x], 33);
  }
}

__global__ void gemm_add_panels_kernel(const float* panels, int count, int N, float* sums) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column < N) {
    float sum = 0.0f;
    for (int panel = 0; panel < count; ++panel) {
      sum = panel == 0 ? panels[column] : sum + panels[int64_t{panel} * N + column];
    }
    sums[column] = sum;
  }
}

void sum_columns(const GemmProblem& p, const Device& device, cudaStream_t stream) {
  const int panels = static_cast<int>((p.M + kColumnPanel - 1) / kColumnPanel);
  const auto scratch = memory_pool(device).allocate(
      std::max<int64_t>(panels, 1) * p.N * sizeof(float), MemoryCategory::workspace);
  auto* partial = static_cast<float*>(scratch->data());
  const auto M = static_cast<int>(p.M);
  const auto N = static_cast<int>(p.N);
  if (panels > 0) {
    gemm_panel_sums_kernel<<<dim3((N + 31) / 32, panels), 256, 0, stream>>>(
        p.d, p.d_dtype, p.d_stride, M, N, partial);
    HALFTONE_CUDA_CHECK_LAUNCH();
  }
  gemm_add_panels_kernel<<<(N + 127) / 128, 128, 0, stream>>>(
      partial, panels, N, static_cast<float*>(p.epilogue.column_sums));
  HALFTONE_CUDA_CHECK_LAUNCH();
}

// ---- Preparation.

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

GemmOutput output_of(const GemmProblem& p) {
  const GemmEpilogue& e = p.epilogue;
  GemmOutput out;
  out.d = p.d;
  out.d_stride = p.d_stride;
  out.d_batch_stride = p.batch == 1 ? 0 : p.d_batch_stride;
  if (p.group != 0) {
    out.d_skip = static_cast<int>(p.d_group_stride / p.d_batch_stride - p.group);
    out.group_reciprocal = static_cast<uint32_t>(ceil_div(int64_t{1} << 32, p.group));
  }
  out.M = static_cast<int>(p.M);
  out.N = static_cast<int>(p.N);
  out.batch = static_cast<int>(p.batch);
  out.d_dtype = p.d_dtype;
  out.bias_dtype = e.bias_dtype;
  out.activation = e.activation;
  out.accumulate = p.accumulate;
  out.bias = e.bias;
  out.pre_activation = e.pre_activation;
  out.gradient_of = e.gradient_of;
  out.residual = e.residual;
  out.vectors = out.d_stride % 8 == 0 && out.d_batch_stride % 8 == 0;
  for (const void* data : {out.bias,
                           static_cast<const void*>(out.d),
                           static_cast<const void*>(out.pre_activation),
                           out.gradient_of,
                           out.residual}) {
    out.vectors = out.vectors && is_aligned(data);
  }
  return out;
}

/// The same problem, its groups said by the batch strides where there is one or they have one
/// matrix each.
GemmProblem without_trivial_groups(GemmProblem p) {
  if (p.group == 1) {
    p.a.batch_stride = p.a.group_stride;
    p.b.batch_stride = p.b.group_stride;
    p.d_batch_stride = p.d_group_stride;
  }
  if (p.group == 1 || p.group == p.batch) {
    p.group = 0;
  }
  return p;
}

/// How `kernel` wants an operand, or nothing where it reads it as it is.
bool needs_packing(GemmKernel kernel,
                   const GemmProblem& p,
                   const GemmOperand& x,
                   bool is_a,
                   PackedLayout& layout) {
  const Format compute = compute_format(p.a.format, p.b.format);
  const int64_t mn = is_a ? p.M : p.N;
  const bool has_intervals =
      p.promote > 0 || p.a.scales.data != nullptr || p.b.scales.data != nullptr;
  layout.dtype = compute == kBf16 ? DType::bf16 : compute == kFp16 ? DType::f16 : DType::f32;
  layout.k_contiguous = k_contiguous(x, is_a);
  layout.mn = mn;
  layout.k = p.K;
  const bool is_16_bit = layout.dtype != DType::f32;
  bool as_is = x.format == compute && is_16_bit && is_aligned(x.data) && x.stride % 8 == 0 &&
               (p.batch == 1 || x.batch_stride % 8 == 0);
  switch (kernel) {
    case GemmKernel::simt:
      layout.dtype = DType::f32;
      return x.format != kFp32;
    case GemmKernel::wmma_naive:
    case GemmKernel::wmma:
      layout.mn = round_up(mn, 128);
      layout.k = round_up(p.K, 64);
      return !(as_is && layout.mn == mn && layout.k == p.K);
    case GemmKernel::mma:
      if (has_intervals || !is_16_bit) {
        as_is = as_is && layout.k_contiguous;
        layout.k_contiguous = true;
      }
      break;
    case GemmKernel::wgmma:
      if (!is_16_bit) {
        layout.k_contiguous = true;
      }
      break;
  }
  const int64_t row = is_16_bit ? 8 : 4;
  (layout.k_contiguous ? layout.k : layout.mn) =
      round_up(layout.k_contiguous ? layout.k : layout.mn, row);
  return !as_is;
}

}  // namespace

void gemm_cuda(const GemmProblem& given, const Device& device, std::string_view kernel) {
  const GemmProblem problem = without_trivial_groups(given);
  HALFTONE_CHECK(problem.M < INT32_MAX / 2 && problem.N < INT32_MAX / 2 &&
                     problem.K < INT32_MAX / 2 && problem.batch < INT32_MAX,
                 "gemm: M, N, K and batch have to stay below 2^30 on a GPU; they are ",
                 problem.M,
                 ", ",
                 problem.N,
                 ", ",
                 problem.K,
                 " and ",
                 problem.batch);
  HALFTONE_CHECK(problem.batch * problem.group < int64_t{1} << 32,
                 "gemm: a batch of ",
                 problem.batch,
                 " in groups of ",
                 problem.group,
                 ": their product has to stay below 2^32 on a GPU");
  HALFTONE_CUDA_CHECK(cudaSetDevice(device.index));
  const DeviceCaps& caps = caps_of(device.index);
  GemmLaunch launch{.a = problem.a,
                    .b = problem.b,
                    .out = output_of(problem),
                    .group = problem.group,
                    .K = problem.K,
                    .config = choose_gemm(given, caps, kernel),
                    .multiprocessors = caps.multiprocessors,
                    .stream = static_cast<cudaStream_t>(cuda::current_stream())};

  std::shared_ptr<Storage> packed[2];
  for (const bool is_a : {true, false}) {
    GemmOperand& x = is_a ? launch.a : launch.b;
    PackedLayout layout;
    if (problem.M > 0 && problem.K > 0 &&
        needs_packing(launch.config.kernel, problem, x, is_a, layout)) {
      const int64_t bytes = packed_size(x, problem.batch, layout) * size_of(layout.dtype);
      packed[is_a] = memory_pool(device).allocate(bytes, MemoryCategory::workspace);
      x = pack_operand(x,
                       is_a,
                       is_a ? problem.M : problem.N,
                       problem.K,
                       problem.batch,
                       problem.group,
                       layout,
                       packed[is_a]->data(),
                       launch.stream);
    }
  }
  std::shared_ptr<Storage> partials;
  GemmOutput& out = launch.out;
  if (launch.config.splits > 1) {
    out.partial_stride = round_up(problem.N, 8);
    partials = memory_pool(device).allocate(
        launch.config.splits * problem.batch * problem.M * out.partial_stride * sizeof(float),
        MemoryCategory::workspace);
    out.partials = static_cast<float*>(partials->data());
    out.d_skip = 0;
  }
  if (problem.M > 0) {
    switch (launch.config.kernel) {
      case GemmKernel::simt:
        run_simt(launch);
        break;
      case GemmKernel::wmma_naive:
      case GemmKernel::wmma:
        run_wmma(launch);
        break;
      case GemmKernel::mma:
        run_mma(launch);
        break;
      case GemmKernel::wgmma:
        run_wgmma(launch);
        break;
    }
    if (launch.config.splits > 1) {
      out.d_skip = output_of(problem).d_skip;
      const int64_t threads = out.partial_stride / 8 * problem.M * problem.batch;
      const int64_t blocks = std::min<int64_t>((threads + 255) / 256, 8 * caps.multiprocessors);
      gemm_fix_up_kernel<<<static_cast<unsigned>(blocks), 256, 0, launch.stream>>>(
          out, static_cast<int>(launch.config.splits));
      HALFTONE_CUDA_CHECK_LAUNCH();
    }
  }
  if (problem.epilogue.column_sums != nullptr) {
    sum_columns(problem, device, launch.stream);
  }
}

}  // namespace halftone::detail
