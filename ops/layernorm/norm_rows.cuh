// Normalisation of rows of at most 2048 elements, a multiple of 8, each by one warp that keeps it
// in registers: one read, one write. Thread t holds elements 256 s + 8 t to 256 s + 8 t + 7 for s =
// 0, 1, ..., which are its lanes of the row tree. Dtypes are run-time values, looked at once for a
// whole row. The other direction is in norm_rows_backward.cuh.
#pragma once

#include "core/cuda/copy_ahead.cuh"
#include "ops/layernorm/norm.h"
#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone::device {

inline constexpr int kNormWarps = 8;
inline constexpr int kNormThreads = kNormWarps * kWarpSize;

/// Rows of a dtype known at run time, to read or to write, aligned for packs of 8.
struct AnyRows {
  void* data = nullptr;
  DType dtype = DType::f32;
};

template <class Body>
__device__ __forceinline__ void with_elements(const AnyRows& rows, const Body& body) {
  switch (rows.dtype) {
    case DType::bf16:
      return body(static_cast<BFloat16*>(rows.data));
    case DType::f16:
      return body(static_cast<Half*>(rows.data));
    default:
      return body(static_cast<float*>(rows.data));
  }
}

/// A row as a warp holds it; elements past its end are 0 when loaded and ignored later.
template <int kSteps>
struct WarpRow {
  float at[kSteps][kRowGroup];

  template <class T>
  struct Packs {
    Pack<T, kRowGroup> at[kSteps];
  };
  template <class T>
  __device__ void set(const Packs<T>& packs) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        at[s][j] = widen(packs.at[s].at(j));
      }
    }
  }

  __device__ static int column(int step) {
    return step * kRowLanes + static_cast<int>(threadIdx.x) % kWarpSize * kRowGroup;
  }

  __device__ void load(const AnyRows& from, int64_t first, int columns) {
    with_elements(from, [&]<class T>(const T* data) {
      Packs<T> packs{};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {  // all loads before the first is waited for
        if (column(s) < columns) {
          packs.at[s] = load_pack<kRowGroup>(data + first + column(s));
        }
      }
      set(packs);
    });
  }

  /// Packs of a row of 16-bit elements that is fetched.
  static constexpr int kPacks = kSteps * kWarpSize;

  /// A row of 16-bit elements on its way to `stage`, where this thread's packs are 32 apart.
  __device__ static void fetch(const AnyRows& from, int64_t first, int columns, uint4* stage) {
    const auto* row = static_cast<const BFloat16*>(from.data) + first;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (column(s) < columns) {
        copy_ahead(stage + s * kWarpSize, row + column(s));
      }
    }
  }

  /// The same, arrived.
  __device__ void load_fetched(const AnyRows& from, int columns, const uint4* stage) {
    const auto as = [&]<class T>(T) {
      Packs<T> packs{};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        if (column(s) < columns) {
          packs.at[s] = load_pack<kRowGroup>(reinterpret_cast<const T*>(stage + s * kWarpSize));
        }
      }
      set(packs);
    };
    from.dtype == DType::bf16 ? as(BFloat16{}) : as(Half{});
  }

  /// Stores the row rounded to the dtype of `to`, and keeps what was stored.
  __device__ void store(const AnyRows& to, int64_t first, int columns) {
    with_elements(to, [&]<class T>(T* data) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        Pack<T, kRowGroup> pack;
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          pack.set(j, narrow<T>(at[s][j]));
          at[s][j] = widen(pack.at(j));
        }
        if (column(s) < columns) {
          store_pack(pack, data + first + column(s));
        }
      }
    });
  }

  /// The row tree over term(s, j), for every thread of the warp.
  template <class Term>
  __device__ static float sum(int columns, const Term& term) {
    RowLanes<float> lanes;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float terms[kRowGroup];
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        terms[j] = term(s, j);
      }
      if ((s + 1) * kRowLanes > columns) {  // the same for the whole warp
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          terms[j] = column(s) < columns ? terms[j] : 0.0f;
        }
      }
      lanes.add(terms);
    }
    return lanes.sum();
  }
};

/// Parameters in shared memory, in the order in which a warp reads them without conflicts: of
/// the 8 elements of a thread, the first 4 of all threads, then the others.
__device__ inline int spread(int step, int thread, int half) {
  return step * kRowLanes + half * (kRowLanes / 2) + thread * (kRowGroup / 2);
}
__device__ inline int spread_of_column(int column) {
  const int in_group = column % kRowGroup;
  constexpr int kHalf = kRowGroup / 2;
  return spread(column / kRowLanes, column % kRowLanes / kRowGroup, in_group / kHalf) +
         in_group % kHalf;
}

template <int kSteps>
__device__ void spread_parameter(const AnyRows& from, int columns, float* to) {
  with_elements(from, [&](const auto* data) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int c = s * kNormThreads + static_cast<int>(threadIdx.x);
      to[spread_of_column(c)] = data == nullptr || c >= columns ? 0.0f : widen(data[c]);
    }
  });
}

__device__ inline void read_spread(const float* from, int step, float (&values)[kRowGroup]) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpSize;
  float halves[2][kRowGroup / 2];
  load(from + spread(step, thread, 0), halves[0]);
  load(from + spread(step, thread, 1), halves[1]);
  memcpy(values, halves, sizeof(values));
}

__device__ inline void write_spread(const float (&values)[kRowGroup], int step, float* to) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpSize;
  float halves[2][kRowGroup / 2];
  memcpy(halves, values, sizeof(values));
  store(halves[0], to + spread(step, thread, 0));
  store(halves[1], to + spread(step, thread, 1));
}

/// What both directions are given.
struct NormRows {
  int64_t rows;
  int columns;
  bool centered;
  float eps;
  AnyRows x, gamma, beta;
  float* means;
  float* rstds;
};

/// Blocks that share a multiprocessor.
template <int kSteps, bool fetches>
inline constexpr int kNormBlocks = kSteps <= (fetches ? 2 : 3) ? 3 : (kSteps <= 4 ? 2 : 1);

/// y from x, which is `from`; or with a branch, x is first written as from + branch. Rows are
/// fetched while those before are worked on, where `fetches`.
template <int kSteps, bool fetches>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks<kSteps, fetches>)
    norm_rows_fwd_kernel(NormRows norm, AnyRows from, AnyRows branch, AnyRows y) {
  constexpr int kWidth = kSteps * kRowLanes;
  extern __shared__ __align__(16) float shared[];
  float* gamma = shared;         // [kWidth]
  float* beta = gamma + kWidth;  // [kWidth]
  wait_for_inputs();
  const int columns = norm.columns;
  const auto n = static_cast<float>(columns);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const bool adds = branch.data != nullptr;
  uint4* stage = reinterpret_cast<uint4*>(beta + kWidth) +
                 warp * (adds ? 2 : 1) * WarpRow<kSteps>::kPacks +
                 static_cast<int>(threadIdx.x) % kWarpSize;
  uint4* stage_branch = stage + WarpRow<kSteps>::kPacks;
  const auto fetch = [&](int64_t row) {
    if (fetches && row < norm.rows) {
      WarpRow<kSteps>::fetch(from, row * columns, columns, stage);
      if (adds) {
        WarpRow<kSteps>::fetch(branch, row * columns, columns, stage_branch);
      }
    }
  };
  const int64_t first_row = int64_t{blockIdx.x} * kNormWarps + warp;
  fetch(first_row);
  spread_parameter<kSteps>(norm.gamma, columns, gamma);
  spread_parameter<kSteps>(norm.beta, columns, beta);
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * kNormWarps;
#pragma unroll 1
  for (int64_t row = first_row; row < norm.rows; row += stride) {
    const int64_t first = row * columns;
    WarpRow<kSteps> x;
    if constexpr (fetches) {
      wait_for_copies();
      x.load_fetched(from, columns, stage);
    } else {
      x.load(from, first, columns);
    }
    if (adds) {
      WarpRow<kSteps> added;
      if constexpr (fetches) {
        added.load_fetched(branch, columns, stage_branch);
      } else {
        added.load(branch, first, columns);
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          x.at[s][j] += added.at[s][j];
        }
      }
      x.store(norm.x, first, columns);  // rounded: what a reader of x sees is what is normalised
    }
    fetch(row + stride);
    float mean = 0.0f;
    if (norm.centered) {
      const float shift = __shfl_sync(kFullWarp, x.at[0][0], 0);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          x.at[s][j] -= shift;
        }
      }
      mean = math::divide(x.sum(columns, [&](int s, int j) { return x.at[s][j]; }), n);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          x.at[s][j] -= mean;
        }
      }
    }
    const float squares = x.sum(columns, [&](int s, int j) { return x.at[s][j] * x.at[s][j]; });
    const float rstd = math::rsqrt(math::divide(squares, n) + norm.eps);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float g[kRowGroup];
      float b[kRowGroup];
      read_spread(gamma, s, g);
      read_spread(beta, s, b);
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        x.at[s][j] = math::fma(x.at[s][j] * rstd, g[j], b[j]);
      }
    }
    x.store(y, first, columns);
    if (threadIdx.x % kWarpSize == 0) {
      norm.means[row] = mean;
      norm.rstds[row] = rstd;
    }
  }
}

}  // namespace halftone::device
