// How the host fills tensors of a device while that device works: into pinned memory, copied from
// there on the current stream, so that neither side waits for the other. Buffers take turns; one is
// filled again only when its last copy has left it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/tensor.h"

namespace halftone {

class Staging {
 public:
  /// For tensors of at most `bytes` on `device`. The host waits where it is `buffers` copies ahead;
  /// with those of two steps it may send one step while the other runs. On the CPU nothing is
  /// staged.
  Staging(Device device, size_t bytes, int64_t buffers);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// `write` writes to.bytes() bytes for the contiguous tensor `to`. What the current stream does
  /// afterwards sees them; what it was given before does not.
  void fill(const Tensor& to, const std::function<void(void*)>& write);

 private:
  struct Pinned;
  size_t bytes_;
  std::unique_ptr<Pinned> pinned_;  // null on the CPU
};

/// A data set, or a part of it, for good: the elements of `host` on `device`, or `host` itself
/// where that is the CPU.
Tensor data_on(Device device, const Tensor& host);

}  // namespace halftone
