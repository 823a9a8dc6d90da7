// Gradients of a normalisation whose rows are each held by one warp (norm_rows.cuh): dx row by row,
// while the warp adds up dgamma and dbeta over its rows. A warp is a lane of the lane tree
// (core/lane_tree.h), so it meets others only when all of its rows are done: in its block, and
// then, block by block, in a second kernel.
#pragma once

#include "core/lane_tree.h"
#include "ops/layernorm/norm_rows.cuh"

namespace halftone::device {

/// Neighbouring lanes, which a block adds up.
inline constexpr int kNormParts = kTreeLanes / kNormWarps;

/// Blocks for so many rows: lanes without rows are left out.
inline int64_t norm_parts(int64_t rows) {
  return std::min<int64_t>((rows + kNormWarps - 1) / kNormWarps, kNormParts);
}

/// The sums of `kCount` neighbours, a power of two, in pairs 1 apart, then 2, 4, ...: in values[0].
template <int kCount>
__device__ __forceinline__ void add_pairs(float (&values)[kCount]) {
#pragma unroll
  for (int stride = 1; stride < kCount; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2 * stride) {
      values[i] += values[i + stride];
    }
  }
}

/// A warp's sums over its rows: in registers while there are enough, else in its part of shared
/// memory, [kSteps * 256] spread.
template <int kSteps, bool in_registers>
struct LaneSums;

template <int kSteps>
struct LaneSums<kSteps, true> {
  float at[kSteps][kRowGroup] = {};

  __device__ explicit LaneSums(float*) {}
  __device__ void add(int step, const float (&values)[kRowGroup]) {
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      at[step][j] += values[j];
    }
  }
  __device__ void write(float* to) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      write_spread(at[s], s, to);
    }
  }
};

template <int kSteps>
struct LaneSums<kSteps, false> {
  float* own;

  __device__ explicit LaneSums(float* to) : own(to) {
    const float zeros[kRowGroup] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      write_spread(zeros, s, own);
    }
  }
  __device__ void add(int step, const float (&values)[kRowGroup]) {
    float sums[kRowGroup];
    read_spread(own, step, sums);
#pragma unroll
    for (int j = 0; j < kRowGroup; ++j) {
      sums[j] += values[j];
    }
    write_spread(sums, step, own);
  }
  __device__ void write(float* to) const {
    float sums[kRowGroup];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      read_spread(own, s, sums);
      write_spread(sums, s, to);
    }
  }
};

struct TwoSums {
  float first, second;
};

/// The sums of two chunks, neither of which waits for the other's shuffles.
__device__ __forceinline__ TwoSums sums_of(const RowLanes<float>& first,
                                           const RowLanes<float>& second) {
  TwoSums sums{group_sum(first.lanes), group_sum(second.lanes)};
#pragma unroll
  for (int stride = kRowGroups / 2; stride > 0; stride /= 2) {
    const float other_first = __shfl_xor_sync(kFullWarp, sums.first, stride);
    const float other_second = __shfl_xor_sync(kFullWarp, sums.second, stride);
    sums.first += other_first;
    sums.second += other_second;
  }
  return sums;
}

/// How many of a warp's two sums are in shared memory, where registers are too few: two blocks
/// share a multiprocessor up to three steps.
template <int kSteps>
inline constexpr int kSharedSums = kSteps == 3 ? 2 : (kSteps <= 4 ? 0 : 2);

/// Floats of shared memory: gamma, the lanes' sums where they are not in registers, and behind them
/// what first holds the rows that are fetched and later the lanes as they meet.
template <int kSteps>
inline constexpr int kNormFixedFloats = kSteps* kRowLanes*(1 + kSharedSums<kSteps> * kNormWarps);
template <int kSteps>
inline constexpr int kNormMeetingFloats = kSteps* kRowLanes* kNormWarps;

/// Warp w of block b takes rows 8 b + w, 2048 later, and so on. Its block's sums go to
/// partials[b][which][column], `which` 0 for dgamma and 1 for dbeta. dx or partials may be null.
/// Rows are fetched while those before are worked on, where `fetches`.
template <int kSteps>
__global__ void __launch_bounds__(kNormThreads, kSteps <= 3 ? 2 : 1) norm_rows_bwd_kernel(
    NormRows norm, AnyRows dy, AnyRows dx, bool accumulate, bool fetches, float* partials) {
  constexpr int kWidth = kSteps * kRowLanes;
  extern __shared__ __align__(16) float shared[];
  float* gamma = shared;  // [kWidth]
  float* meeting = shared + kNormFixedFloats<kSteps>;
  wait_for_inputs();
  const int columns = norm.columns;
  const auto n = static_cast<float>(columns);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  uint4* stage = reinterpret_cast<uint4*>(meeting) + warp * 2 * WarpRow<kSteps>::kPacks +
                 static_cast<int>(threadIdx.x) % kWarpSize;
  uint4* stage_dy = stage + WarpRow<kSteps>::kPacks;

  float next_statistic = 0.0f;  // of the next row: its rstd, its mean in the first lane
  const auto fetch = [&](int64_t row) {
    if (row < norm.rows) {
      next_statistic = (threadIdx.x % kWarpSize == 0 ? norm.means : norm.rstds)[row];
      if (fetches) {
        WarpRow<kSteps>::fetch(norm.x, row * columns, columns, stage);
        WarpRow<kSteps>::fetch(dy, row * columns, columns, stage_dy);
      }
    }
  };
  const int64_t first_row = int64_t{blockIdx.x} * kNormWarps + warp;
  fetch(first_row);
  spread_parameter<kSteps>(norm.gamma, columns, gamma);
  float* own_sums = gamma + kWidth + warp * kSharedSums<kSteps> * kWidth;
  LaneSums<kSteps, kSharedSums<kSteps> == 0> beta_sums(own_sums);
  LaneSums<kSteps, kSharedSums<kSteps> <= 1> gamma_sums(own_sums + kWidth);
  __syncthreads();

#pragma unroll 1
  for (int64_t row = first_row; row < norm.rows; row += kTreeLanes) {
    const int64_t first = row * columns;
    WarpRow<kSteps> xhat;
    WarpRow<kSteps> g;  // dy, then dy * gamma
    if (fetches) {
      wait_for_copies();
      xhat.load_fetched(norm.x, columns, stage);
      g.load_fetched(dy, columns, stage_dy);
    } else {
      xhat.load(norm.x, first, columns);
      g.load(dy, first, columns);
    }
    const float mean_of_row = __shfl_sync(kFullWarp, next_statistic, 0);
    const float rstd = __shfl_sync(kFullWarp, next_statistic, 1);
    fetch(row + kTreeLanes);
    const float shift = norm.centered ? __shfl_sync(kFullWarp, xhat.at[0][0], 0) : 0.0f;
    RowLanes<float> along_lanes;
    RowLanes<float> mean_lanes;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      // Past the row's end dy and gamma are 0, and so must xhat be.
      const float scale = WarpRow<kSteps>::column(s) < columns ? rstd : 0.0f;
      float of_gamma[kRowGroup];
      float factor[kRowGroup];
      float along[kRowGroup];
      read_spread(gamma, s, factor);
      beta_sums.add(s, g.at[s]);
#pragma unroll
      for (int j = 0; j < kRowGroup; ++j) {
        const float v = xhat.at[s][j];
        xhat.at[s][j] = (norm.centered ? (v - shift) - mean_of_row : v) * scale;
        of_gamma[j] = g.at[s][j] * xhat.at[s][j];
        along[j] = of_gamma[j] * factor[j];
        g.at[s][j] *= factor[j];
      }
      gamma_sums.add(s, of_gamma);
      along_lanes.add(along);
      mean_lanes.add(g.at[s]);
    }
    if (dx.data == nullptr) {
      continue;
    }
    const TwoSums sums = sums_of(along_lanes, mean_lanes);
    const float along = math::divide(sums.first, n);
    const float mean = norm.centered ? math::divide(sums.second, n) : 0.0f;
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
  if (partials == nullptr) {
    return;
  }

  const auto meet = [&](const auto& lane_sums, int which) {
    __syncthreads();  // rows, or the other sums, have been read
    lane_sums.write(meeting + warp * kWidth);
    __syncthreads();
    constexpr int kHalf = kRowGroup / 2;
    for (int c = static_cast<int>(threadIdx.x) * kHalf; c < columns; c += kNormThreads * kHalf) {
      float lanes[kNormWarps][kHalf];
#pragma unroll
      for (int lane = 0; lane < kNormWarps; ++lane) {
        load(meeting + lane * kWidth + spread_of_column(c), lanes[lane]);
      }
      float sums[kHalf];
#pragma unroll
      for (int j = 0; j < kHalf; ++j) {
        float of_column[kNormWarps];
#pragma unroll
        for (int lane = 0; lane < kNormWarps; ++lane) {
          of_column[lane] = lanes[lane][j];
        }
        add_pairs(of_column);
        sums[j] = of_column[0];
      }
      store(sums, partials + (int64_t{blockIdx.x} * 2 + which) * columns + c);
    }
  };
  meet(gamma_sums, 0);
  meet(beta_sums, 1);
}

/// partials[part][which][column] of rows by any warp's reach: a block takes 32 columns of 8 lanes.
/// term(row, column, g) gives dy * xhat and writes dy to g.
template <class Term>
__global__ void __launch_bounds__(kNormThreads)
    norm_lanes_kernel(int64_t rows, int64_t columns, int64_t parts, Term term, float* partials) {
  __shared__ float lanes[2][kNormWarps][kWarpSize];
  const int in_warp = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t part = blockIdx.x % parts;
  const int64_t column = blockIdx.x / parts * kWarpSize + in_warp;
  float of_gamma = 0.0f;
  float of_beta = 0.0f;
  if (column < columns) {
    for (int64_t row = part * kNormWarps + warp; row < rows; row += kTreeLanes) {
      float dy = 0.0f;
      of_gamma += term(row, column, dy);
      of_beta += dy;
    }
  }
  lanes[0][warp][in_warp] = of_gamma;
  lanes[1][warp][in_warp] = of_beta;
  __syncthreads();
  if (warp < 2 && column < columns) {
    float sums[kNormWarps];
#pragma unroll
    for (int lane = 0; lane < kNormWarps; ++lane) {
      sums[lane] = lanes[warp][lane][in_warp];
    }
    add_pairs(sums);
    partials[(part * 2 + warp) * columns + column] = sums[0];
  }
}

/// dgamma and dbeta, or what is added to them: the blocks' sums in pairs. A block takes 32 columns
/// of one.
__global__ void __launch_bounds__(kNormThreads) norm_parts_kernel(int parts,
                                                                  int64_t columns,
                                                                  const float* partials,
                                                                  AnyRows dgamma,
                                                                  bool accumulate_gamma,
                                                                  AnyRows dbeta,
                                                                  bool accumulate_beta) {
  constexpr int kOwn = kNormParts / kNormWarps;  // of a thread
  __shared__ float sums[kNormWarps][kWarpSize];
  wait_for_inputs();
  const int in_warp = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t column = int64_t{blockIdx.x / 2} * kWarpSize + in_warp;
  const int which = static_cast<int>(blockIdx.x % 2);
  const AnyRows out = which == 0 ? dgamma : dbeta;
  const bool accumulate = which == 0 ? accumulate_gamma : accumulate_beta;
  if (out.data == nullptr) {
    return;
  }
  float own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int part = warp * kOwn + i;
    own[i] = part < parts && column < columns
                 ? partials[(int64_t{part} * 2 + which) * columns + column]
                 : 0.0f;
  }
  add_pairs(own);
  sums[warp][in_warp] = own[0];
  __syncthreads();
  if (warp != 0 || column >= columns) {
    return;
  }
  float of_warps[kNormWarps];
#pragma unroll
  for (int w = 0; w < kNormWarps; ++w) {
    of_warps[w] = sums[w][in_warp];
  }
  add_pairs(of_warps);
  with_elements(out, [&](auto* data) {
    accumulate ? put<true>(data[column], of_warps[0]) : put<false>(data[column], of_warps[0]);
  });
}

}  // namespace halftone::device
