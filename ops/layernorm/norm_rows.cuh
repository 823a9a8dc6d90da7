// Normalisation of rows of at most 2048 elements, a multiple of 8, each by one warp that keeps it
// in registers: one read, one write. Thread t holds elements 256 s + 8 t to 256 s + 8 t + 7 for s =
// 0, 1, ..., which are its lanes of the row tree. Backward also forms the panel sums of dgamma and
// dbeta: the rows of a block meet in shared memory, 16 at a time, as the column tree says. Dtypes
// are run-time values, looked at once for a whole row.
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

  /// Elements of 16 bits on their way to `stage`, this thread's kSteps packs 32 apart.
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
  __device__ void load_fetched(DType dtype, const uint4* stage) {
    const auto from = [&]<class T>(T) {
      Packs<T> packs;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        packs.at[s] = load_pack<kRowGroup>(reinterpret_cast<const T*>(stage + s * kWarpSize));
      }
      set(packs);
    };
    dtype == DType::bf16 ? from(BFloat16{}) : from(Half{});
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

__device__ inline void spread_parameter(const AnyRows& from, int columns, float* to) {
  with_elements(from, [&](const auto* data) {
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += kNormThreads) {
      to[spread_of_column(c)] = data == nullptr ? 0.0f : widen(data[c]);
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

/// y from x; with a residual, x is first written as residual + branch.
template <int kSteps>
__global__ void __launch_bounds__(kNormThreads,
                                  kSteps <= 3   ? 3
                                  : kSteps == 4 ? 2
                                                : 1)
    norm_rows_fwd_kernel(NormRows norm, AnyRows residual, AnyRows branch, AnyRows y) {
  __shared__ alignas(kVectorBytes) float gamma[kSteps * kRowLanes];
  __shared__ alignas(kVectorBytes) float beta[kSteps * kRowLanes];
  spread_parameter(norm.gamma, norm.columns, gamma);
  spread_parameter(norm.beta, norm.columns, beta);
  __syncthreads();
  const int columns = norm.columns;
  const auto n = static_cast<float>(columns);
  const int64_t stride = int64_t{gridDim.x} * kNormWarps;
  for (int64_t row = int64_t{blockIdx.x} * kNormWarps + threadIdx.x / kWarpSize; row < norm.rows;
       row += stride) {
    const int64_t first = row * columns;
    WarpRow<kSteps> x;
    if (residual.data == nullptr) {
      x.load(norm.x, first, columns);
    } else {
      WarpRow<kSteps> added;
      x.load(residual, first, columns);
      added.load(branch, first, columns);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          x.at[s][j] += added.at[s][j];
        }
      }
      x.store(norm.x, first, columns);  // rounded: what a reader of x sees is what is normalised
    }
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

/// A block takes a panel of 128 rows, 8 at a time: dx row by row, then these rows' part of the
/// panel's sums. The sums go to panels[panel][which][spread column], `which` 0 for dgamma and 1 for
/// dbeta. dx or panels may be null. Rows of 16-bit elements are fetched while those before are
/// summed, where `fetches`.
template <int kSteps>
__global__ void __launch_bounds__(kNormThreads, kSteps <= 3 ? 2 : 1) norm_rows_bwd_kernel(
    NormRows norm, AnyRows dy, AnyRows dx, bool accumulate, bool fetches, float* panels) {
  constexpr int kWidth = kSteps * kRowLanes;
  constexpr int kPair = 2;  // columns that a thread sums together
  constexpr int kPasses = kColumnPanel / kNormWarps;
  static_assert(kSteps * kPair * kNormThreads == 2 * kWidth);
  extern __shared__ __align__(16) float shared[];
  float* gamma = shared;                             // [kWidth]
  float* terms = gamma + kWidth;                     // [8 rows][which][kWidth]
  float* pending = terms + kNormWarps * 2 * kWidth;  // [4][which][kWidth], each thread its own
  spread_parameter(norm.gamma, norm.columns, gamma);
  __syncthreads();
  const int columns = norm.columns;
  const auto n = static_cast<float>(columns);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;

  uint4* stage = reinterpret_cast<uint4*>(pending + 4 * 2 * kWidth) +
                 warp * 2 * kSteps * kWarpSize + static_cast<int>(threadIdx.x) % kWarpSize;
  uint4* stage_dy = stage + kSteps * kWarpSize;

  // Rows 8 apart meet first: rows 0 to 3 and 8 to 11 of sixteen, then the other eight.
  const auto row_of = [&](int pass) {
    return int64_t{blockIdx.x} * kColumnPanel + pass / 2 * 16 + pass % 2 * 4 +
           (warp < 4 ? warp : warp + 4);
  };
  float next_mean = 0.0f;
  float next_rstd = 0.0f;
  const auto fetch = [&](int pass) {
    const int64_t row = row_of(pass);
    if (pass < kPasses && row < norm.rows) {
      next_mean = norm.means[row];
      next_rstd = norm.rstds[row];
      if (fetches) {
        WarpRow<kSteps>::fetch(norm.x, row * columns, columns, stage);
        WarpRow<kSteps>::fetch(dy, row * columns, columns, stage_dy);
      }
    }
  };
  fetch(0);
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t row = row_of(pass);
    float* own_terms = terms + warp * 2 * kWidth;
    if (row < norm.rows) {
      const int64_t first = row * columns;
      WarpRow<kSteps> xhat;
      WarpRow<kSteps> g;  // dy, then dy * gamma
      if (fetches) {
        wait_for_copies();
        xhat.load_fetched(norm.x.dtype, stage);
        g.load_fetched(dy.dtype, stage_dy);
      } else {
        xhat.load(norm.x, first, columns);
        g.load(dy, first, columns);
      }
      const float mean_of_row = next_mean;
      const float rstd = next_rstd;
      fetch(pass + 1);
      const float shift = norm.centered ? __shfl_sync(kFullWarp, xhat.at[0][0], 0) : 0.0f;
      RowLanes<float> along_lanes;
      RowLanes<float> mean_lanes;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        float of_gamma[kRowGroup];
        float factor[kRowGroup];
        float along[kRowGroup];
        read_spread(gamma, s, factor);
        if (panels != nullptr) {
          write_spread(g.at[s], s, own_terms + kWidth);
        }
#pragma unroll
        for (int j = 0; j < kRowGroup; ++j) {
          const float v = xhat.at[s][j];
          xhat.at[s][j] = (norm.centered ? (v - shift) - mean_of_row : v) * rstd;
          of_gamma[j] = g.at[s][j] * xhat.at[s][j];
          along[j] = of_gamma[j] * factor[j];
          g.at[s][j] *= factor[j];
        }
        if (panels != nullptr) {
          write_spread(of_gamma, s, own_terms);
        }
        if ((s + 1) * kRowLanes > columns) {
#pragma unroll
          for (int j = 0; j < kRowGroup; ++j) {
            const bool inside = xhat.column(s) < columns;
            along[j] = inside ? along[j] : 0.0f;
            g.at[s][j] = inside ? g.at[s][j] : 0.0f;
          }
        }
        along_lanes.add(along);
        mean_lanes.add(g.at[s]);
      }
      if (dx.data != nullptr) {
        const float along = math::divide(along_lanes.sum(), n);
        const float mean = norm.centered ? math::divide(mean_lanes.sum(), n) : 0.0f;
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
          for (int j = 0; j < kRowGroup; ++j) {
            g.at[s][j] = rstd * ((g.at[s][j] - mean) - xhat.at[s][j] * along);
          }
        }
        if (accumulate) {
          xhat.load(dx, first, columns);
#pragma unroll
          for (int s = 0; s < kSteps; ++s) {
#pragma unroll
            for (int j = 0; j < kRowGroup; ++j) {
              g.at[s][j] = xhat.at[s][j] + g.at[s][j];
            }
          }
        }
        g.store(dx, first, columns);
      }
    } else if (panels != nullptr) {
      const float zeros[kRowGroup] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        write_spread(zeros, s, own_terms);
        write_spread(zeros, s, own_terms + kWidth);
      }
    }
    if (panels == nullptr) {
      continue;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int at = (k * kNormThreads + static_cast<int>(threadIdx.x)) * kPair;
      float rows[kNormWarps][kPair];
#pragma unroll
      for (int r = 0; r < kNormWarps; ++r) {
        load(terms + r * 2 * kWidth + at, rows[r]);
      }
      float sum[kPair];
#pragma unroll
      for (int j = 0; j < kPair; ++j) {
        sum[j] = ((rows[0][j] + rows[4][j]) + (rows[1][j] + rows[5][j])) +
                 ((rows[2][j] + rows[6][j]) + (rows[3][j] + rows[7][j]));
      }
      // Sums of 8, 16, 32 and 64 rows wait for their neighbours: a binary counter of passes.
      int level = 0;
      for (; (pass >> level & 1) != 0; ++level) {
        float waiting[kPair];
        load(pending + level * 2 * kWidth + at, waiting);
#pragma unroll
        for (int j = 0; j < kPair; ++j) {
          sum[j] += waiting[j];
        }
      }
      if (pass == kPasses - 1) {
        store(sum, panels + int64_t{blockIdx.x} * 2 * kWidth + at);
      } else {
        store(sum, pending + level * 2 * kWidth + at);
      }
    }
    __syncthreads();  // before the next rows overwrite these
  }
}

/// dgamma and dbeta, or what is added to them: the panels' sums in ascending order. A thread takes
/// a column of one.
__global__ void norm_panels_kernel(int64_t num_panels,
                                   int columns,
                                   int width,
                                   const float* panels,
                                   AnyRows dgamma,
                                   bool accumulate_gamma,
                                   AnyRows dbeta,
                                   bool accumulate_beta) {
  const int column = static_cast<int>(blockIdx.x / 2 * blockDim.x + threadIdx.x);
  const bool of_beta = blockIdx.x % 2 != 0;
  const AnyRows out = of_beta ? dbeta : dgamma;
  const bool accumulate = of_beta ? accumulate_beta : accumulate_gamma;
  if (column >= columns || out.data == nullptr) {
    return;
  }
  const float sum = ascending_sum(
      num_panels, panels + (of_beta ? width : 0) + spread_of_column(column), int64_t{2} * width);
  with_elements(out, [&](auto* data) {
    accumulate ? put<true>(data[column], sum) : put<false>(data[column], sum);
  });
}

}  // namespace halftone::device
