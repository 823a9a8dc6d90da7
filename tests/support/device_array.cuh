// Device memory for tests, filled from and read back into a std::vector.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "core/cuda/check.cuh"

namespace halftone::testing {

/// Device memory for the length of a test.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    HALFTONE_CUDA_CHECK(cudaMalloc(&data_, size * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    HALFTONE_CUDA_CHECK(
        cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() { return data_; }
  std::vector<T> to_host() const {
    std::vector<T> values(size_);
    HALFTONE_CUDA_CHECK(
        cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t size_;
  T* data_ = nullptr;
};

}  // namespace halftone::testing
