// What happens to an FP32 product before it is stored (GemmEpilogue), shared by every kernel: bias,
// pre-activation, activation or its derivative, residual, one rounding on store. Each step is one
// FP32 operation rounded to nearest, as on the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/math.h"
#include "ops/gemm/activation.h"
#include "ops/gemm/gemm.h"

namespace halftone::detail {

/// The output side of a problem as kernels see it. With `partials` a kernel stores the bare sums of
/// its split there, [split][batch][M][partial_stride], and gemm_fix_up_kernel does the rest.
struct GemmOutput {
  void* d = nullptr;
  int64_t d_stride = 0;
  int64_t d_batch_stride = 0;
  int M = 0;
  int N = 0;
  int batch = 1;
  // ceil(2^32 / GemmProblem::group), 0 without groups: matrix i is of group i * this / 2^32.
  uint32_t group_reciprocal = 0;
  int d_skip = 0;  // places between the groups of D, which lie d_batch_stride apart
  DType d_dtype = DType::f32;
  DType bias_dtype = DType::f32;
  Activation activation = Activation::none;
  bool accumulate = false;
  bool vectors = false;  // groups of 8 columns from a multiple of 8 are aligned to 16 bytes
                         // wherever they are read or written
  const void* bias = nullptr;
  void* pre_activation = nullptr;
  const void* gradient_of = nullptr;
  const void* residual = nullptr;
  float* partials = nullptr;
  int64_t partial_stride = 0;

  /// Nothing but sums to store: partial ones, or an FP32 D in aligned pairs without an epilogue.
  bool is_plain() const {
    return partials != nullptr ||
           (d_dtype == DType::f32 && vectors && bias == nullptr && activation == Activation::none &&
            pre_activation == nullptr && residual == nullptr);
  }
  __device__ int group_of(int matrix) const {
    return static_cast<int>(__umulhi(static_cast<uint32_t>(matrix), group_reciprocal));
  }
  /// Where D has a matrix of the batch. With `partials`, d_skip is 0 until they are added.
  __device__ int place(int matrix) const { return matrix + group_of(matrix) * d_skip; }
  __device__ int64_t offset(int place, int row, int column) const {
    return place * d_batch_stride + row * d_stride + column;
  }
  __device__ float* partial(int split, int matrix, int row, int column) const {
    return partials + ((int64_t{split} * batch + matrix) * M + row) * partial_stride + column;
  }
};

__device__ __forceinline__ float2 unpack_bf16(uint32_t bits) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u)};
}
__device__ __forceinline__ float2 unpack_f16(uint32_t bits) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
/// Rounded to nearest even, the first value in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float load_value(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::bf16:
      return __uint_as_float(uint32_t{static_cast<const uint16_t*>(data)[i]} << 16);
    case DType::f16:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

/// Two consecutive values from an even place, `valid` of which exist.
__device__ __forceinline__ float2
load_pair(const void* data, DType dtype, int64_t i, bool vectors, int valid) {
  if (vectors && valid >= 2) {
    if (dtype == DType::f32) {
      return *reinterpret_cast<const float2*>(static_cast<const float*>(data) + i);
    }
    const uint32_t bits =
        *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(data) + i);
    return dtype == DType::bf16 ? unpack_bf16(bits) : unpack_f16(bits);
  }
  return {valid > 0 ? load_value(data, dtype, i) : 0.0f,
          valid > 1 ? load_value(data, dtype, i + 1) : 0.0f};
}

__device__ __forceinline__ void store_value(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::bf16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      break;
    case DType::f16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      break;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

/// Eight consecutive values; `valid` of them exist.
__device__ __forceinline__ void load_8(
    const void* data, DType dtype, int64_t i, bool vectors, int valid, float (&v)[8]) {
  if (vectors && valid == 8) {
    if (dtype == DType::f32) {
      const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + i);
      const float4 low = from[0], high = from[1];
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
      v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
      return;
    }
    const uint4 bits = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + i);
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 pair = dtype == DType::bf16 ? unpack_bf16(words[w]) : unpack_f16(words[w]);
      v[2 * w] = pair.x;
      v[2 * w + 1] = pair.y;
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    v[j] = j < valid ? load_value(data, dtype, i + j) : 0.0f;
  }
}

__device__ __forceinline__ void store_8(
    void* data, DType dtype, int64_t i, bool vectors, int valid, const float (&v)[8]) {
  if (vectors && valid == 8) {
    if (dtype == DType::f32) {
      auto* to = reinterpret_cast<float4*>(static_cast<float*>(data) + i);
      to[0] = {v[0], v[1], v[2], v[3]};
      to[1] = {v[4], v[5], v[6], v[7]};
      return;
    }
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[w] = dtype == DType::bf16 ? pack_bf16(v[2 * w], v[2 * w + 1])
                                      : pack_f16(v[2 * w], v[2 * w + 1]);
    }
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + i) = {
        words[0], words[1], words[2], words[3]};
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (j < valid) {
      store_value(data, dtype, i + j, v[j]);
    }
  }
}

/// The bias of eight consecutive columns, read once for all rows.
__device__ __forceinline__ void load_bias(const GemmOutput& out, int column, float (&bias)[8]) {
  if (out.bias != nullptr && column < out.N) {
    load_8(out.bias, out.bias_dtype, column, out.vectors, min(8, out.N - column), bias);
  }
}

/// The whole epilogue of eight consecutive columns of one row; `column` is a multiple of 8 below N.
/// `bias` is load_bias's.
__device__ __forceinline__ void finish_8(
    const GemmOutput& out, int place, int row, int column, const float (&bias)[8], float (&v)[8]) {
  const int valid = min(8, out.N - column);
  const int64_t at = out.offset(place, row, column);
  float other[8];
  if (out.bias != nullptr) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] += bias[j];
    }
  }
  if (out.pre_activation != nullptr) {
    store_8(out.pre_activation, out.d_dtype, at, out.vectors, valid, v);
  }
  if (out.gradient_of != nullptr) {
    load_8(out.gradient_of, out.d_dtype, at, out.vectors, valid, other);
    if (out.activation == Activation::gelu) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v[j] *= math::gelu_grad(other[j]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v[j] *= relu_grad(other[j]);
      }
    }
  } else if (out.activation == Activation::gelu) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = math::gelu(v[j]);
    }
  } else if (out.activation == Activation::relu) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = relu(v[j]);
    }
  }
  if (out.residual != nullptr) {
    load_8(out.residual, out.d_dtype, at, out.vectors, valid, other);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] += other[j];
    }
  }
  if (out.accumulate) {
    load_8(out.d, out.d_dtype, at, out.vectors, valid, other);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = other[j] + v[j];
    }
  }
  store_8(out.d, out.d_dtype, at, out.vectors, valid, v);
}

/// Where chunk `chunk` (16 bytes) of row `row` lies in a warp's staging of rows of kWidth floats:
/// XORed so that neither the pairs written nor the chunks read collide in a bank.
template <int kWidth>
__device__ __forceinline__ float* staged(float* staging, int row, int chunk) {
  return staging + row * kWidth + ((chunk ^ (row % 8) ^ (chunk / 8)) << 2);
}

/// Writes 16 x kWidth sums of one warp, held as mma and wgmma hold them (v[4 j + i] of lane l: row
/// l/4 + 8 (i/2), column 8 j + 2 (l%4) + i%2).
template <int kWidth>
__device__ __forceinline__ void stage_fragments(const float* v, float* staging) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
    const int chunk = 2 * j + lane % 4 / 2;
    const int within = lane % 2 * 2;
    *reinterpret_cast<float2*>(staged<kWidth>(staging, lane / 4, chunk) + within) = {v[4 * j],
                                                                                     v[4 * j + 1]};
    *reinterpret_cast<float2*>(staged<kWidth>(staging, lane / 4 + 8, chunk) + within) = {
        v[4 * j + 2], v[4 * j + 3]};
  }
}

/// Takes 16 x kWidth staged sums through the whole epilogue: every lane gets 8 columns of a row, so
/// that global memory is read and written 16 bytes at a time.
template <int kWidth>
__device__ __forceinline__ void finish_staged(
    const GemmOutput& out, float* staging, int row, int column, int place) {
  constexpr int kLanes = kWidth / 8;  // to a row
  const int lane = threadIdx.x % 32;
  const int c = column + lane % kLanes * 8;
  float bias[8];
  load_bias(out, c, bias);
#pragma unroll 1
  for (int r = lane / kLanes; r < 16; r += 32 / kLanes) {
    if (row + r < out.M && c < out.N) {
      const auto read = [&](int chunk) {
        return *reinterpret_cast<const float4*>(staged<kWidth>(staging, r, chunk));
      };
      const float4 low = read(lane % kLanes * 2);
      const float4 high = read(lane % kLanes * 2 + 1);
      float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      finish_8(out, place, row + r, c, bias, values);
    }
  }
}

/// Both for 16 rows; `staging` is the warp's own 16 x kWidth floats of shared memory.
template <int kWidth>
__device__ __forceinline__ void finish_fragments(
    const float* v, const GemmOutput& out, float* staging, int row, int column, int place) {
  __syncwarp();
  stage_fragments<kWidth>(v, staging);
  __syncwarp();
  finish_staged<kWidth>(out, staging, row, column, place);
}

/// The same 16 x kWidth sums as FP32 pairs straight to the partial sums of a split, or to a D that
/// has no epilogue: each quad of lanes fills a sector of 32 bytes. Pairs of D have to be aligned
/// (GemmOutput::vectors).
/// kBatch pairs are read before the first of them is written: each would else wait for memory on
/// its own.
template <int kWidth, int kBatch>
__device__ __forceinline__ void store_fragments(
    const float* v, const GemmOutput& out, int row, int column, int place, int split) {
  const int lane = threadIdx.x % 32;
  const int c0 = column + 2 * (lane % 4);
  const bool is_partial = out.partials != nullptr;
  const int width = is_partial ? static_cast<int>(out.partial_stride) : out.N;
  const bool adds = out.accumulate && !is_partial;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane / 4 + 8 * half;
    if (r >= out.M) {
      continue;
    }
    float* to = is_partial ? out.partial(split, place, r, 0)
                           : static_cast<float*>(out.d) + out.offset(place, r, 0);
#pragma unroll
    for (int j0 = 0; j0 < kWidth / 8; j0 += kBatch) {
      float2 old[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int c = c0 + 8 * (j0 + j);
        old[j] =
            adds && c + 1 < width ? *reinterpret_cast<const float2*>(to + c) : float2{0.0f, 0.0f};
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int c = c0 + 8 * (j0 + j);
        const int i = 4 * (j0 + j) + 2 * half;
        if (c + 1 < width) {
          *reinterpret_cast<float2*>(to + c) =
              adds ? float2{old[j].x + v[i], old[j].y + v[i + 1]} : float2{v[i], v[i + 1]};
        } else if (c < width) {
          to[c] = adds ? to[c] + v[i] : v[i];
        }
      }
    }
  }
}

}  // namespace halftone::detail
