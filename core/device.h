// Where a tensor lives, and whether this build can reach a GPU at all. Code that runs on both sides
// is marked HALFTONE_HD.
#pragma once

#include <string>
#include <string_view>

#ifdef __CUDACC__
#define HALFTONE_HD __host__ __device__
#else
#define HALFTONE_HD
#endif

namespace halftone {

#ifdef HALFTONE_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

enum class DeviceType { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:N".
std::string to_string(const Device& device);

/// Throws std::logic_error: `op` was reached with a CUDA tensor in a build without CUDA.
[[noreturn]] void throw_no_cuda(std::string_view op);

/// Throws std::logic_error: `op` has no CUDA kernel, so it must not be given a CUDA tensor.
[[noreturn]] void throw_not_on_gpu(std::string_view op);

}  // namespace halftone
