// The fixed reduction trees. Which additions are made, and in which order, is a function of the
// length alone: never of threads, blocks, instruction set or device, so the CPU and a GPU give the
// same bits.
//
// Row tree, for a sum over n elements: the row is cut into chunks of 4096. In a chunk, element i
// belongs to lane i % 256; a lane starts at +0 and adds its elements in ascending order. The 8
// lanes of a group (lanes 8g to 8g+7) are combined in pairs 4 apart, then 2, then 1; the 32 groups
// in pairs 16 apart, then 8, 4, 2, 1. Chunk sums are added in ascending order. (On a GPU a warp
// takes a chunk: a thread reads 8 consecutive elements at a time, and the groups meet in a
// butterfly of shuffles.)
//
// Column tree, for sums over rows: panels of 128 rows; in a panel, rows 8 apart are paired, then
// 1, 2, 4, 16, 32, 64 apart; a missing row is +0. Panel sums are added in ascending order. (The
// order in which accumulators of mma and wgmma meet: the two rows of a thread, lanes, warps,
// warpgroups.)
//
// A flat buffer: chunks of 4096 as above, whose sums are then the elements of a row. The maximum is
// associative and commutative, so it needs no tree.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

#include "core/device.h"
#include "core/parallel.h"

namespace halftone {

inline constexpr int kRowChunk = 4096;  // elements
inline constexpr int kRowLanes = 256;
inline constexpr int kRowGroup = 8;  // consecutive lanes that one GPU thread holds
inline constexpr int kRowGroups = kRowLanes / kRowGroup;
inline constexpr int kColumnPanel = 128;  // rows

/// The larger of two; NaN if either is (payload not promised), and +0 of two zeros unless both are
/// -0.
template <class T>
HALFTONE_HD inline T maximum(T a, T b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
  }
#endif
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const T equal = std::bit_cast<T>(std::bit_cast<Bits>(a) & std::bit_cast<Bits>(b));
  const T larger = a > b ? a : b;
  const T number = a == b ? equal : larger;
  return a != a ? a : number;  // where b is NaN, `larger` is b already
}

/// The sum of one group of lanes: pairs 4, 2 and 1 apart.
template <class T>
HALFTONE_HD constexpr T group_sum(const T* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// The row tree over one chunk of 0 <= count <= 4096 elements. element(i) is called once for each i
/// in [0, count).
template <class T, class Element>
T chunk_sum(int count, Element&& element) {
  // Lanes are never -0, and adding +0 to anything else changes nothing, so lanes and groups without
  // elements are left out.
  alignas(64) T lanes[kRowLanes];
  alignas(64) T groups[kRowGroups];
  const auto at = [&](int i) -> T { return element(int64_t{i}); };
  int num_groups = kRowGroups;
  if (count >= kRowLanes) {
    for (int lane = 0; lane < kRowLanes; ++lane) {
      lanes[lane] = T(0) + at(lane);
    }
    int begin = kRowLanes;
    for (; begin + kRowLanes <= count; begin += kRowLanes) {
      for (int lane = 0; lane < kRowLanes; ++lane) {
        lanes[lane] += at(begin + lane);
      }
    }
    for (int lane = 0; lane < count - begin; ++lane) {
      lanes[lane] += at(begin + lane);
    }
  } else {
    num_groups = (count + kRowGroup - 1) / kRowGroup;
    for (int lane = 0; lane < count; ++lane) {
      lanes[lane] = T(0) + at(lane);
    }
    std::fill(lanes + count, lanes + num_groups * kRowGroup, T(0));
  }
  for (int g = 0; g < num_groups; ++g) {
    groups[g] = group_sum(lanes + g * kRowGroup);
  }
  for (int stride = kRowGroups / 2; stride > 0; stride /= 2) {
    for (int g = 0; g + stride < std::min(2 * stride, num_groups); ++g) {
      groups[g] += groups[g + stride];
    }
  }
  return count > 0 ? groups[0] : T(0);
}

namespace detail {

/// Elements of the chunk that starts at `begin` in a row or flat buffer of n.
inline int chunk_length(int64_t n, int64_t begin) {
  return static_cast<int>(std::min<int64_t>(n - begin, kRowChunk));
}

}  // namespace detail

/// The row tree over n >= 0 elements: element(i) is called once for each i in [0, n), in an
/// unspecified order. 0 for n = 0.
template <class T, class Element>
T row_sum(int64_t n, Element&& element) {
  T sum = chunk_sum<T>(detail::chunk_length(n, 0), element);
  for (int64_t begin = kRowChunk; begin < n; begin += kRowChunk) {
    sum +=
        chunk_sum<T>(detail::chunk_length(n, begin), [&](int64_t i) { return element(begin + i); });
  }
  return sum;
}

/// The maximum of n >= 0 elements, NaN if one is NaN; -infinity for n = 0. element(i) is called
/// once for each i in [0, n).
template <class T, class Element>
T row_max(int64_t n, Element&& element) {
  constexpr int kLanes = 32;  // enough to hide the latency of a comparison
  T largest = -std::numeric_limits<T>::infinity();
  int64_t begin = 0;
  if (n >= kLanes) {
    alignas(64) T lanes[kLanes];
    std::fill(lanes, lanes + kLanes, largest);
    for (; begin + kLanes <= n; begin += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = maximum(lanes[lane], element(begin + lane));
      }
    }
    for (int stride = kLanes / 2; stride > 0; stride /= 2) {
      for (int lane = 0; lane < stride; ++lane) {
        lanes[lane] = maximum(lanes[lane], lanes[lane + stride]);
      }
    }
    largest = lanes[0];
  }
  for (; begin < n; ++begin) {
    largest = maximum(largest, element(begin));
  }
  return largest;
}

/// The sum over a flat buffer of `size` >= 0 elements, by chunks shared among threads. element(i)
/// is called once for each i.
template <class T, class Element>
T flat_sum(int64_t size, Element&& element) {
  const int64_t num_chunks = (size + kRowChunk - 1) / kRowChunk;
  const auto sums = std::make_unique_for_overwrite<T[]>(num_chunks);
  constexpr int64_t kGrain = 8;  // chunks a thread picks at a time
  parallel_for_range(num_chunks, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kRowChunk;
      sums[chunk] = chunk_sum<T>(detail::chunk_length(size, begin),
                                 [&](int64_t i) { return element(begin + i); });
    }
  });
  return row_sum<T>(num_chunks, [&](int64_t chunk) { return sums[chunk]; });
}

namespace detail {

inline constexpr int kColumnBlock =
    256;  // columns summed together: one partial sum of them is 1 KiB of FP32

/// The column tree over 16 rows, of which `rows` >= 16 are present if `full`: pairs 8, 1, 2, 4
/// apart, to sums[0, width).
template <bool full, class T, class Element>
void sixteen_row_sum(int64_t rows, int width, Element&& element, T* sums) {
  alignas(64) T upper[kColumnBlock];
  const auto at = [&](int64_t r, int c) { return full || r < rows ? element(r, c) : T(0); };
  const auto four = [&](int64_t r, int c) {  // 8 apart, then 1 apart
    return (at(r, c) + at(r + 8, c)) + (at(r + 1, c) + at(r + 9, c));
  };
  // Four rows at a time: few enough streams for the prefetcher and for a cache where the rows
  // collide.
  for (int c = 0; c < width; ++c) {
    sums[c] = four(0, c);
  }
  for (int c = 0; c < width; ++c) {
    sums[c] += four(2, c);
  }
  for (int c = 0; c < width; ++c) {
    upper[c] = four(4, c);
  }
  for (int c = 0; c < width; ++c) {
    sums[c] += upper[c] + four(6, c);
  }
}

}  // namespace detail

/// The column tree over one panel of 1 <= rows <= 128 and width <= 256 columns, to sums[0, width).
/// element(r, c) is called once for each r in [0, rows), c in [0, width).
template <class T, class Element>
void column_panel_sum(int64_t rows, int width, Element&& element, T* sums) {
  // The sums of 16 rows meet 16, 32 and 64 apart: carries of a binary counter, pending[l] holding
  // 2^l of them.
  alignas(64) T pending[4][detail::kColumnBlock];
  alignas(64) T carry[detail::kColumnBlock];
  const int64_t blocks = (rows + 15) / 16;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = 16 * block;
    const auto shifted = [&](int64_t r, int c) { return element(first + r, c); };
    if (rows - first >= 16) {
      detail::sixteen_row_sum<true>(rows - first, width, shifted, carry);
    } else {
      detail::sixteen_row_sum<false>(rows - first, width, shifted, carry);
    }
    int level = 0;
    for (; (block >> level & 1) != 0; ++level) {
      for (int c = 0; c < width; ++c) {
        carry[c] = pending[level][c] + carry[c];
      }
    }
    std::copy_n(carry, width, pending[level]);
  }
  if (blocks == 8) {
    std::copy_n(pending[3], width, sums);
    return;
  }
  std::fill_n(sums, width, T(0));  // the missing rows, met by whatever is pending
  for (int level = 0; level < 3; ++level) {
    if ((blocks >> level & 1) != 0) {
      for (int c = 0; c < width; ++c) {
        sums[c] = pending[level][c] + sums[c];
      }
    }
  }
}

/// The column tree over rows x columns elements, to sums[0, columns), by panels and blocks of
/// columns shared among threads. element(r, c) is called once for each pair. rows = 0 gives zeros.
template <class T, class Element>
void column_sum(int64_t rows, int64_t columns, Element&& element, T* sums) {
  const int64_t panels = (rows + kColumnPanel - 1) / kColumnPanel;
  const int64_t blocks = (columns + detail::kColumnBlock - 1) / detail::kColumnBlock;
  if (panels == 0) {
    std::fill_n(sums, columns, T(0));
    return;
  }
  // Panel 0 goes to `sums`, the others to a buffer, and are added when all are there.
  const auto later = std::make_unique_for_overwrite<T[]>((panels - 1) * columns);
  const int64_t block_width = std::min<int64_t>(columns, detail::kColumnBlock);
  const int64_t grain =
      std::max<int64_t>(1, detail::kColumnBlock / std::max<int64_t>(1, block_width));
  parallel_for_range(panels * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t panel = task / blocks;
      const int64_t row = panel * kColumnPanel;
      const int64_t column = task % blocks * detail::kColumnBlock;
      T* out = (panel == 0 ? sums : later.get() + (panel - 1) * columns) + column;
      column_panel_sum(
          std::min<int64_t>(rows - row, kColumnPanel),
          static_cast<int>(std::min<int64_t>(columns - column, detail::kColumnBlock)),
          [&](int64_t r, int c) { return element(row + r, column + c); },
          out);
    }
  });
  for (int64_t panel = 1; panel < panels; ++panel) {
    const T* partial = later.get() + (panel - 1) * columns;
    for (int64_t c = 0; c < columns; ++c) {
      sums[c] += partial[c];
    }
  }
}

}  // namespace halftone
