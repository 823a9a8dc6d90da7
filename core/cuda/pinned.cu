#include "core/cuda/pinned.h"

#include "core/cuda/launch.cuh"

namespace halftone::cuda {

PinnedBuffer::PinnedBuffer(size_t bytes) {
  cudaEvent_t event = nullptr;
  HALFTONE_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  sent_ = event;
  HALFTONE_CUDA_CHECK(cudaHostAlloc(&memory_, bytes, cudaHostAllocDefault));
}

PinnedBuffer::~PinnedBuffer() {
  (void)cudaEventSynchronize(static_cast<cudaEvent_t>(sent_));
  (void)cudaEventDestroy(static_cast<cudaEvent_t>(sent_));
  (void)cudaFreeHost(memory_);
}

void* PinnedBuffer::memory() {
  HALFTONE_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(sent_)));
  return memory_;
}

void PinnedBuffer::send(void* to, size_t bytes) {
  HALFTONE_CUDA_CHECK(cudaMemcpyAsync(to, memory_, bytes, cudaMemcpyHostToDevice, stream()));
  HALFTONE_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(sent_), stream()));
}

}  // namespace halftone::cuda
