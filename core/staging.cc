#include "core/staging.h"

#include <deque>

#include "core/check.h"

#ifdef HALFTONE_HAS_CUDA
#include "core/cuda/pinned.h"
#endif

namespace halftone {

struct Staging::Pinned {
#ifdef HALFTONE_HAS_CUDA
  std::deque<cuda::PinnedBuffer> buffers;
  size_t next = 0;
#endif
};

Staging::Staging(Device device, size_t bytes, [[maybe_unused]] int64_t buffers) : bytes_(bytes) {
  if (device.is_cuda()) {
#ifdef HALFTONE_HAS_CUDA
    pinned_ = std::make_unique<Pinned>();
    for (int64_t i = 0; i < buffers; ++i) {
      pinned_->buffers.emplace_back(bytes);
    }
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
  pinned_->next = (pinned_->next + 1) % pinned_->buffers.size();
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
