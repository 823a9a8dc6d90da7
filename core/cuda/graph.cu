#include "core/cuda/graph.h"

#include "core/cuda/launch.cuh"

namespace halftone::cuda {
namespace {

// Ends the recording of the current stream however the body left it.
cudaGraph_t end_recording() {
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream(), &graph);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw CudaError(concat("a step cannot be recorded as a CUDA graph: ",
                           cudaGetErrorString(status),
                           "; run it without (--graph off)"));
  }
  return graph;
}

}  // namespace

Graph::Graph(const std::function<void()>& body) : held_(std::make_unique<BlockHold>()) {
  // Relaxed: the pool may ask for another block meanwhile.
  HALFTONE_CUDA_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
  try {
    body();
  } catch (...) {
    cudaGraph_t unfinished = nullptr;
    (void)cudaStreamEndCapture(stream(), &unfinished);
    (void)cudaGetLastError();
    if (unfinished != nullptr) {
      (void)cudaGraphDestroy(unfinished);
    }
    throw;
  }
  const std::shared_ptr<void> graph(end_recording(), [](void* recorded) {
    (void)cudaGraphDestroy(static_cast<cudaGraph_t>(recorded));
  });
  held_->close();
  HALFTONE_CUDA_CHECK(
      cudaGraphGetNodes(static_cast<cudaGraph_t>(graph.get()), nullptr, &num_nodes_));
  cudaGraphExec_t executable = nullptr;
  HALFTONE_CUDA_CHECK(cudaGraphInstantiate(&executable, static_cast<cudaGraph_t>(graph.get()), 0));
  executable_ = std::shared_ptr<void>(executable, [](void* instantiated) {
    // A replay on its way is finished first: the driver sees to it.
    (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(instantiated));
  });
}

void Graph::replay() const {
  HALFTONE_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), stream()));
}

void refuse_in_graph(const char* what) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  HALFTONE_CUDA_CHECK(cudaStreamIsCapturing(stream(), &status));
  if (status != cudaStreamCaptureStatusNone) {
    throw CudaError(concat(
        "a step cannot be recorded as a CUDA graph: ", what, "; run it without (--graph off)"));
  }
}

}  // namespace halftone::cuda
