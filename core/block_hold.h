// Keeps memory for what the pools cannot see: a recorded CUDA graph uses the blocks that its step
// took, long after the step's tensors are gone. Held blocks go back to their free list and serve
// others meanwhile, but never back to the device (core/storage.h, MemoryPool::trim).
#pragma once

#include <vector>

namespace halftone {

/// Holds, while it lives, the blocks that pools hand out between its construction and close(). One
/// is open at a time. Not thread-safe, as pools are not.
class BlockHold {
 public:
  BlockHold();
  ~BlockHold();
  BlockHold(const BlockHold&) = delete;
  BlockHold& operator=(const BlockHold&) = delete;

  /// Blocks handed out from now on are not held.
  void close();

  /// What a pool tells and asks: `block` was handed out; whether someone holds it.
  static void handed_out(void* block);
  static bool is_held(void* block);
  /// Whether any hold lives; whether one is open.
  static bool any();
  static bool is_open();

 private:
  std::vector<void*> blocks_;
};

}  // namespace halftone
