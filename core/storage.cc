#include "core/storage.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <new>
#include <unordered_map>
#include <vector>

#include "core/block_hold.h"
#include "core/check.h"

#ifdef HALFTONE_HAS_CUDA
#include "core/cuda/memory.h"
#endif

namespace halftone {
namespace {

constexpr size_t kAlignment = 256;

// Steps are numbered from 1; current is 0 outside a scope. A storage of step s is dead once s is no
// longer current.
uint64_t current_step = 0;
uint64_t last_step = 0;

// Eight classes per power of two: at most an eighth of a block is lost, and nearby sizes share
// blocks.
size_t size_class(size_t bytes) {
  const size_t size = bytes < kAlignment ? kAlignment : bytes;
  const size_t step = std::max(std::bit_floor(size) / 8, kAlignment);
  return (size + step - 1) / step * step;
}

class HostBlocks : public BlockSource {
 public:
  void* allocate(size_t bytes) override { return std::aligned_alloc(kAlignment, bytes); }
  void release(void* block) noexcept override { std::free(block); }
  size_t free_bytes() const override { return 0; }
};

}  // namespace

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::weights:
      return "weights";
    case MemoryCategory::masters:
      return "masters";
    case MemoryCategory::moments:
      return "moments";
    case MemoryCategory::gradients:
      return "gradients";
    case MemoryCategory::quantized:
      return "quantized";
    case MemoryCategory::activations:
      return "activations";
    case MemoryCategory::workspace:
      return "workspace";
    case MemoryCategory::data:
      return "data";
  }
  throw std::logic_error("name_of: not a MemoryCategory");
}

Storage::~Storage() { pool_->recycle(data_, bytes_, category_); }

void* Storage::data() const {
  if (step_ != 0 && step_ != current_step) {
    throw std::logic_error(concat("tensor: its memory belongs to step ",
                                  step_,
                                  ", which has ended; copy what must outlive a step"));
  }
  return data_;
}

const Device& Storage::device() const { return pool_->device(); }

struct MemoryPool::FreeLists {
  std::unordered_map<size_t, std::vector<void*>> by_size;
};

MemoryPool::MemoryPool(Device device, std::unique_ptr<BlockSource> source)
    : device_(device), source_(std::move(source)), free_(std::make_unique<FreeLists>()) {}

MemoryPool::~MemoryPool() { trim(); }

std::shared_ptr<Storage> MemoryPool::allocate(size_t bytes, MemoryCategory category) {
  const size_t size = size_class(bytes);
  std::vector<void*>& list = free_->by_size[size];
  void* block = nullptr;
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
  } else {
    block = source_->allocate(size);
    if (block == nullptr) {
      trim();
      block = source_->allocate(size);
    }
    if (block == nullptr) {
      const size_t free = source_->free_bytes();  // 0: not known
      throw OutOfMemory(concat("out of memory on ",
                               to_string(device_),
                               ": asked for ",
                               bytes,
                               " bytes of ",
                               name_of(category),
                               " with ",
                               stats_.total.live_bytes,
                               " bytes in use",
                               free == 0 ? "" : concat(" and ", free, " free"),
                               "; lower --batch, --hidden, --context or --width, or use "
                               "--recompute",
                               BlockHold::any() ? " or --graph off" : ""));
    }
  }
  BlockHold::handed_out(block);
  count(category, static_cast<int64_t>(bytes));
  const bool of_step =
      category == MemoryCategory::activations || category == MemoryCategory::workspace;
  return std::make_shared<Storage>(this, block, bytes, category, of_step ? current_step : 0);
}

void MemoryPool::recycle(void* block, size_t bytes, MemoryCategory category) noexcept {
  count(category, -static_cast<int64_t>(bytes));
  free_->by_size[size_class(bytes)].push_back(block);
}

void MemoryPool::count(MemoryCategory category, int64_t bytes) {
  for (MemoryUse* use : {&stats_.by_category[static_cast<size_t>(category)], &stats_.total}) {
    use->live_bytes += bytes;
    use->peak_bytes = std::max(use->peak_bytes, use->live_bytes);
  }
}

void MemoryPool::reset_peaks() {
  for (MemoryUse& use : stats_.by_category) {
    use.peak_bytes = use.live_bytes;
  }
  stats_.total.peak_bytes = stats_.total.live_bytes;
}

void MemoryPool::trim() {
  if (BlockHold::is_open()) {
    return;  // free blocks may be those of tensors that the recorded work has dropped and takes
             // again
  }
  for (auto& [size, list] : free_->by_size) {
    const auto held = std::stable_partition(list.begin(), list.end(), &BlockHold::is_held);
    std::for_each(held, list.end(), [&](void* block) { source_->release(block); });
    list.erase(held, list.end());
  }
}

MemoryPool& memory_pool(const Device& device) {
  // Never destroyed: tensors with static lifetime may outlive any order of destruction.
  static auto& cpu = *new MemoryPool(Device{}, std::make_unique<HostBlocks>());
  if (device.is_cpu()) {
    return cpu;
  }
#ifdef HALFTONE_HAS_CUDA
  static auto& pools = *new std::map<int, std::unique_ptr<MemoryPool>>();
  std::unique_ptr<MemoryPool>& pool = pools[device.index];
  if (pool == nullptr) {
    pool = std::make_unique<MemoryPool>(device, cuda::device_blocks(device.index));
  }
  return *pool;
#else
  throw_no_cuda("memory_pool");
#endif
}

StepScope::StepScope() {
  if (current_step != 0) {
    throw std::logic_error("StepScope: a step is already running; scopes do not nest");
  }
  current_step = ++last_step;
}

StepScope::~StepScope() { current_step = 0; }

}  // namespace halftone
