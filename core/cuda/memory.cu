#include "core/cuda/memory.h"

#include "core/cuda/check.cuh"
#include "core/cuda/graph.h"

namespace halftone::cuda {
namespace {

int64_t num_synchronizations = 0;

class DeviceBlocks : public BlockSource {
 public:
  explicit DeviceBlocks(int device) : device_(device) {
    const int count = device_count();
    HALFTONE_CHECK(device >= 0 && device < count,
                   "cuda:",
                   device,
                   " was asked for, but the number of usable GPUs is ",
                   count);
  }
  void* allocate(size_t bytes) override {
    HALFTONE_CUDA_CHECK(cudaSetDevice(device_));
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, bytes);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // not sticky: the pool trims and asks again
      return nullptr;
    }
    HALFTONE_CUDA_CHECK(status);
    return block;
  }
  void release(void* block) noexcept override {
    if (cudaFree(block) != cudaSuccess) {
      (void)cudaGetLastError();  // not the next launch's
    }
  }
  size_t free_bytes() const override {
    size_t free = 0;
    size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }

 private:
  int device_;
};

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

std::unique_ptr<BlockSource> device_blocks(int device) {
  return std::make_unique<DeviceBlocks>(device);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) {
    return;
  }
  const bool with_host = to_device.is_cpu() || from_device.is_cpu();
  if (with_host) {
    refuse_in_graph("it copies between host and device");
  }
  const auto stream = static_cast<cudaStream_t>(current_stream());
  HALFTONE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  if (with_host) {
    synchronize();
  }
}

void zero_bytes(void* data, size_t bytes) {
  if (bytes != 0) {
    HALFTONE_CUDA_CHECK(
        cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(current_stream())));
  }
}

void* current_stream() {
  thread_local const cudaStream_t stream = [] {
    cudaStream_t created = nullptr;
    HALFTONE_CUDA_CHECK(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    return created;
  }();
  return stream;
}

void synchronize() {
  refuse_in_graph("it waits for the device");
  ++num_synchronizations;
  HALFTONE_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(current_stream())));
}

int64_t synchronize_count() { return num_synchronizations; }

}  // namespace halftone::cuda
