// How a tile leaves a consumer warpgroup of the wgmma kernel as 16-bit values: through slabs of
// shared memory, 64 x 64 and 128-byte swizzled, and the copy engine. A slab's life, in this order:
// the thread that issues stores waits until the copy engine has read what the slab held, all
// threads wait for that thread, they write it, fence, wait for each other, and that thread issues
// the store.
#pragma once

#include "ops/gemm/gemm_sm90_work.cuh"

namespace halftone::detail {

/// Where a warpgroup's part of a tile belongs.
struct TilePlace {
  int row = 0;
  int column = 0;
  int matrix = 0;  // GemmOutput::place
};

/// Part `part` of the tile, 64 x 64, as registers. One copy of the code that follows then serves
/// all parts.
template <int kBlocks, int kHalf>
__device__ __forceinline__ void take_part(const float (&acc)[kBlocks][kHalf],
                                          int part,
                                          float (&v)[32]) {
  constexpr int kAcross = kHalf / 32;
#pragma unroll
  for (int p = 0; p < kBlocks * kAcross; ++p) {
    if (p == part) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        v[i] = acc[p / kAcross][p % kAcross * 32 + i];
      }
    }
  }
}

/// Adds the bias of 16 columns to this thread's 8 values of them.
__device__ __forceinline__ void add_bias(float (&v)[8], const float* bias) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float2 b = *reinterpret_cast<const float2*>(bias + 8 * j + threadIdx.x % 4 * 2);
    v[4 * j] += b.x;
    v[4 * j + 1] += b.y;
    v[4 * j + 2] += b.x;
    v[4 * j + 3] += b.y;
  }
}

template <class In>
__device__ __forceinline__ void pack_8(const float (&v)[8], uint32_t* words) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = std::is_same_v<In, Half> ? pack_f16(v[2 * i], v[2 * i + 1])
                                        : pack_bf16(v[2 * i], v[2 * i + 1]);
  }
}

/// Writes 16 columns, from 16 pair, of a slab.
__device__ __forceinline__ void write_slab(uint32_t slab, int pair, const uint32_t* words) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 % 4 * 16 + lane % 16;  // whose address this lane gives
  const int chunk = pair * 2 + lane / 16;
  sm90::stmatrix_x4(
      slab + row * 128 + ((chunk ^ (row % 8)) << 4), words[0], words[1], words[2], words[3]);
}

/// Asks the copy engine to store a slab, unless it lies outside D.
__device__ __forceinline__ void store_slab(const CUtensorMap* map,
                                           const GemmOutput& out,
                                           uint32_t slab,
                                           const TilePlace& place) {
  if (place.row < out.M && place.column < out.N) {
    sm90::tma_store(map, slab, place.column, place.row, place.matrix);
  }
}

/// A tile as 16-bit values in registers, until the products of the next one are on their way.
template <class T>
struct PackedTile {
  static constexpr int kAcross = T::kN / 64;
  uint32_t words[T::kTileSlabs][16];
  TilePlace place;

  /// `bias`: that of the tile's columns, or null.
  __device__ __forceinline__ void pack(const float (&acc)[T::kRows / 64][T::kN / 2],
                                       const float* bias) {
#pragma unroll
    for (int slab = 0; slab < T::kTileSlabs; ++slab) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          v[i] = acc[slab / kAcross][slab % kAcross * 32 + 8 * pair + i];
        }
        if (bias != nullptr) {
          add_bias(v, bias + slab % kAcross * 64 + 16 * pair);
        }
        pack_8<typename T::In>(v, &words[slab][4 * pair]);
      }
    }
  }

  /// One round of staging: kSlabs slabs, or those that are left.
  template <int kRound>
  __device__ __forceinline__ void store(const CUtensorMap* map,
                                        const GemmOutput& out,
                                        uint32_t staging,
                                        int barrier) const {
    using namespace sm90;
    constexpr int kFirst = kRound * T::kSlabs;
    constexpr int kCount = T::kTileSlabs - kFirst < T::kSlabs ? T::kTileSlabs - kFirst : T::kSlabs;
    if (threadIdx.x % 128 == 0) {
      tma_store_wait_read<0>();
    }
    named_sync(barrier, 128);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        write_slab(staging + i * 8192, pair, &words[kFirst + i][4 * pair]);
      }
    }
    fence_proxy_async();
    named_sync(barrier, 128);
    if (threadIdx.x % 128 == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int slab = kFirst + i;
        store_slab(
            map,
            out,
            staging + i * 8192,
            {place.row + slab / kAcross * 64, place.column + slab % kAcross * 64, place.matrix});
      }
      tma_store_commit();
    }
  }
};

/// The ping-pong kernel's way, with pre-activation and activation, while the other warpgroup
/// multiplies.
template <class T>
__device__ __forceinline__ void finish_packed(const float (&acc)[T::kRows / 64][T::kN / 2],
                                              const CUtensorMap* map_d,
                                              const CUtensorMap* map_pre_activation,
                                              const GemmOutput& out,
                                              const float* bias,
                                              uint32_t staging,
                                              int barrier,
                                              const TilePlace& place) {
  using namespace sm90;
  constexpr int kAcross = T::kN / 64;
  constexpr int kBuffers = T::kSlabs / 2;  // of a slab of D and one of the pre-activation
#pragma unroll 1
  for (int part = 0; part < T::kTileSlabs; ++part) {
    const uint32_t slab = staging + part % kBuffers * 16384;
    if (threadIdx.x % 128 == 0) {
      tma_store_wait_read<kBuffers - 1>();
    }
    named_sync(barrier, 128);
    float values[32];
    take_part(acc, part, values);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      float v[8];
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        v[i] = values[8 * pair + i];
      }
      if (out.bias != nullptr) {
        add_bias(v, bias + part % kAcross * 64 + 16 * pair);
      }
      if (out.pre_activation != nullptr) {
        pack_8<typename T::In>(v, words);
        write_slab(slab + 8192, pair, words);
      }
      if (out.activation == Activation::gelu) {
#pragma unroll
        for (float& x : v) {
          x = math::gelu(x);
        }
      } else if (out.activation == Activation::relu) {
#pragma unroll
        for (float& x : v) {
          x = relu(x);
        }
      }
      pack_8<typename T::In>(v, words);
      write_slab(slab, pair, words);
    }
    fence_proxy_async();
    named_sync(barrier, 128);
    if (threadIdx.x % 128 == 0) {
      const TilePlace at{
          place.row + part / kAcross * 64, place.column + part % kAcross * 64, place.matrix};
      store_slab(map_d, out, slab, at);
      if (out.pre_activation != nullptr) {
        store_slab(map_pre_activation, out, slab + 8192, at);
      }
      tma_store_commit();
    }
  }
}

/// This thread's share of a tile's bias, read ahead of its use.
template <int kN>
struct BiasShare {
  static constexpr int kEach = (kN + 127) / 128;
  float values[kEach];

  __device__ __forceinline__ void load(const GemmOutput& out, int column) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = column + i * 128 + static_cast<int>(threadIdx.x % 128);
      values[i] = n < out.N ? load_value(out.bias, out.bias_dtype, n) : 0.0f;
    }
  }
  __device__ __forceinline__ void write(float* bias) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = i * 128 + static_cast<int>(threadIdx.x % 128);
      if (n < kN) {
        bias[n] = values[i];
      }
    }
  }
};

}  // namespace halftone::detail
