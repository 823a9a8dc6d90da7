// Launching kernels: on the thread's stream, with grids that cover any amount of work, checked.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/check.cuh"

namespace halftone::cuda {

inline cudaStream_t stream() { return static_cast<cudaStream_t>(current_stream()); }

/// A grid of one dimension. No blocks: nothing is launched.
struct Grid {
  int64_t blocks = 0;
  int threads = 256;
  size_t shared_bytes = 0;
};

/// Blocks for `work` items of which a block takes `per_block` at a time; beyond a million blocks
/// they loop. Results never depend on it.
inline int64_t blocks_for(int64_t work, int64_t per_block) {
  return std::min<int64_t>((work + per_block - 1) / per_block, int64_t{1} << 20);
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Arguments... arguments) {
  if (grid.blocks == 0) {
    return;
  }
  HALFTONE_CHECK(grid.blocks <= INT32_MAX, "launch: a grid of ", grid.blocks, " blocks");
  kernel<<<static_cast<unsigned>(grid.blocks), grid.threads, grid.shared_bytes, stream()>>>(
      arguments...);
  HALFTONE_CUDA_CHECK_LAUNCH();
}

}  // namespace halftone::cuda
