// The lane tree: the fixed order of additions for sums over rows that are walked through whole, as
// dgamma and dbeta of a normalisation are. Row r belongs to lane r % 2048; a lane starts at +0 and
// adds its rows in ascending order; lanes meet in pairs 1 apart, then 2, 4, ..., 1024. On a GPU a
// lane is a warp, which keeps its sums in registers until its rows are done. (Other sums over rows
// take the column tree of core/reduce.h, whose rows come 128 at a time.)
#pragma once

#include <cstdint>

namespace halftone {

inline constexpr int kTreeLanes = 2048;

/// Rows of sums [count, columns] meet in pairs 1 apart, then 2, 4, ...: the first becomes the
/// total. They may be lanes, or what groups of 2^n neighbours came to. Lanes are never -0, so those
/// without rows can be left out.
template <class T>
void add_pairs(int64_t count, int64_t columns, T* sums) {
  for (int64_t stride = 1; stride < count; stride *= 2) {
    for (int64_t i = 0; i + stride < count; i += 2 * stride) {
      T* to = sums + i * columns;
      const T* from = to + stride * columns;
      for (int64_t c = 0; c < columns; ++c) {
        to[c] += from[c];
      }
    }
  }
}

}  // namespace halftone
