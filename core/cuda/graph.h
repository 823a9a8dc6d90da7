// A stretch of work on the current stream, recorded once and replayed as one CUDA graph. A graph
// repeats addresses and arguments: what changes from replay to replay must lie in the device's
// memory. Blocks that the pool handed out while it was recorded stay with the pool while the graph
// lives (core/block_hold.h); other work may use them between replays, as the stream orders it. No
// CUDA header is needed to include this one, and none of it is called in a build without CUDA.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/block_hold.h"

namespace halftone::cuda {

class Graph {
 public:
  /// Records what `body` puts on the current stream; nothing runs yet. Throws CudaError, with the
  /// reason, where the body waits for the device, copies from or to host memory, or calls what a
  /// graph cannot hold; errors of the body's own pass through.
  explicit Graph(const std::function<void()>& body);

  /// Runs the recorded work on the current stream, behind what is there.
  void replay() const;

  /// Kernels, copies and fills in the graph.
  size_t num_nodes() const { return num_nodes_; }

 private:
  std::shared_ptr<void> executable_;  // a cudaGraphExec_t
  size_t num_nodes_ = 0;
  std::unique_ptr<BlockHold> held_;
};

/// Throws CudaError while a graph is recorded: `what` cannot be part of one.
void refuse_in_graph(const char* what);

}  // namespace halftone::cuda
