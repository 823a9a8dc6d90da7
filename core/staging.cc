#include "core/staging.h"

#include "core/check.h"

#ifdef HALFTONE_HAS_CUDA
#include "core/cuda/pinned.h"
#endif

namespace halftone {

struct Staging::Pinned {
#ifdef HALFTONE_HAS_CUDA
  explicit Pinned(size_t bytes) : buffers{cuda::PinnedBuffer(bytes), cuda::PinnedBuffer(bytes)} {}
  cuda::PinnedBuffer buffers[2];
  int next = 0;
#endif
};

Staging::Staging(Device device, size_t bytes) : bytes_(bytes) {
  if (device.is_cuda()) {
#ifdef HALFTONE_HAS_CUDA
    pinned_ = std::make_unique<Pinned>(bytes);
#else
    throw_no_cuda("Staging");
#endif
  }
}

Staging::~Staging() = default;

void Staging::fill(const Tensor& to, const std::function<void(void*)>& write) {
  HALFTONE_CHECK(to.is_contiguous() && static_cast<size_t>(to.bytes()) <= bytes_ &&
                     to.is_cpu() == (pinned_ == nullptr),
                 "Staging: a tensor of ",
                 to.bytes(),
                 " bytes on ",
                 to_string(to.device()),
                 ", expected a contiguous one of at most ",
                 bytes_,
                 " on the device it was made for");
  if (pinned_ == nullptr) {
    write(to.raw());
    return;
  }
#ifdef HALFTONE_HAS_CUDA
  cuda::PinnedBuffer& buffer = pinned_->buffers[pinned_->next];
  pinned_->next = 1 - pinned_->next;
  write(buffer.memory());
  buffer.send(to.raw(), static_cast<size_t>(to.bytes()));
#endif
}

Tensor data_on(Device device, const Tensor& host) {
  if (device.is_cpu()) {
    return host;
  }
  const Tensor to = Tensor::empty(host.shape(), host.dtype(), device, MemoryCategory::data);
  copy(host, to);
  return to;
}

}  // namespace halftone
