#include "core/device.h"

#include <stdexcept>

#include "core/check.h"

namespace halftone {

std::string to_string(const Device& device) {
  return device.is_cpu() ? "cpu" : concat("cuda:", device.index);
}

void throw_no_cuda(std::string_view op) {
  throw std::logic_error(
      concat(op, ": the tensor lives on a GPU, but this build has no CUDA code"));
}

void throw_not_on_gpu(std::string_view op) {
  throw std::logic_error(
      concat(op, ": the tensor lives on a GPU, and this op has no CUDA kernel; use --device cpu"));
}

}  // namespace halftone
