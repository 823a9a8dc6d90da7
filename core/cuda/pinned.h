// Page-locked host memory that a GPU copies from while the host goes on. No CUDA header is needed.
#pragma once

#include <cstddef>

namespace halftone::cuda {

class PinnedBuffer {
 public:
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  /// The memory, to be written: waits until the last copy from it has ended.
  void* memory();
  /// Copies its first `bytes` to the device, on the current stream, without waiting.
  void send(void* to, size_t bytes);

 private:
  void* memory_ = nullptr;
  void* sent_ = nullptr;  // a cudaEvent_t
};

}  // namespace halftone::cuda
