// Memory behind tensors. Every allocation belongs to a category whose live and peak bytes are
// counted, and goes back to a size-class free list when its last reference dies, so that the same
// sequence of requests gets the same addresses (a captured CUDA graph stays valid). Activations and
// workspace taken inside a StepScope belong to that step: a tensor kept past it throws when
// touched. Not thread-safe: tensors are created and released by the thread that runs the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/device.h"

namespace halftone {

enum class MemoryCategory : uint8_t {
  weights,      // the copies that the forward pass reads, and FP32 weights that have no other copy
  masters,      // FP32 master weights beside 16-bit ones
  moments,      // optimizer state
  gradients,    // flat gradient buffers
  quantized,    // FP8 and narrower copies of weights, with their scales
  activations,  // everything a step computes
  workspace,    // scratch that lives within one op
  data,         // datasets and batches
};
inline constexpr int kNumMemoryCategories = 8;
std::string_view name_of(MemoryCategory category);

/// Bytes asked for, live now and at the worst moment so far.
struct MemoryUse {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
};
struct MemoryStats {
  std::array<MemoryUse, kNumMemoryCategories> by_category;
  MemoryUse total;
};

class MemoryPool;

class Storage {
 public:
  Storage(MemoryPool* pool, void* data, size_t bytes, MemoryCategory category, uint64_t step)
      : pool_(pool), data_(data), bytes_(bytes), category_(category), step_(step) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// The memory. Throws std::logic_error if it belongs to a step that has ended.
  void* data() const;
  size_t bytes() const { return bytes_; }
  const Device& device() const;

 private:
  MemoryPool* pool_;
  void* data_;
  size_t bytes_;
  MemoryCategory category_;
  uint64_t step_;  // 0: outlives steps
};

/// Where a pool's blocks come from: the CPU's aligned heap, or a device's memory
/// (core/cuda/memory.h).
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// A block aligned to 256 bytes, or null if there is none.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* block) noexcept = 0;
  /// Bytes that are free, for the out-of-memory message; 0 if unknown.
  virtual size_t free_bytes() const = 0;
};

/// The pool of one device. Out of memory throws std::bad_alloc's child OutOfMemory with what was
/// asked, what is free and what to lower.
class MemoryPool {
 public:
  MemoryPool(Device device, std::unique_ptr<BlockSource> source);
  ~MemoryPool();

  std::shared_ptr<Storage> allocate(size_t bytes, MemoryCategory category);
  const Device& device() const { return device_; }
  const MemoryStats& stats() const { return stats_; }
  /// Peaks start again from what is live now.
  void reset_peaks();
  /// Hands blocks that nothing uses back to the source.
  void trim();

 private:
  friend class Storage;
  struct FreeLists;
  void recycle(void* block, size_t bytes, MemoryCategory category) noexcept;
  void count(MemoryCategory category, int64_t bytes);

  Device device_;
  std::unique_ptr<BlockSource> source_;
  std::unique_ptr<FreeLists> free_;
  MemoryStats stats_;
};

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// The pool of a device; made on first use. Throws std::invalid_argument for a device that this
/// build or machine lacks.
MemoryPool& memory_pool(const Device& device);

/// While it lives, activations and workspace belong to one step. Scopes do not nest.
class StepScope {
 public:
  StepScope();
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
};

}  // namespace halftone
