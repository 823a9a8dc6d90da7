// Device memory as host code sees it: no CUDA header is needed to include this one. Errors throw
// CudaError.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/storage.h"

namespace halftone {

/// A CUDA call failed: the call, the place and the runtime's own words.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace cuda {

/// How many usable GPUs there are: 0 without a driver or a device.
int device_count();
/// Blocks from cudaMalloc on one device, for its MemoryPool.
std::unique_ptr<BlockSource> device_blocks(int device);
/// Copies on the current stream, and waits for it if either side is host memory.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);
/// Zeroes on the current stream.
void zero_bytes(void* data, size_t bytes);
/// The stream every operation of this thread launches on (a cudaStream_t).
void* current_stream();
/// Waits for the current stream, and counts: the summary reports how often a run waited.
void synchronize();
int64_t synchronize_count();

}  // namespace cuda
}  // namespace halftone
