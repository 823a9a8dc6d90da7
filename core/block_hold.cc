#include "core/block_hold.h"

#include <unordered_map>

#include "core/check.h"

namespace halftone {
namespace {

BlockHold* open_hold = nullptr;

// How many times a block is held. Never destroyed: graphs may have static lifetime.
std::unordered_map<void*, int>& counts() {
  static auto& map = *new std::unordered_map<void*, int>();
  return map;
}

}  // namespace

BlockHold::BlockHold() {
  HALFTONE_CHECK(open_hold == nullptr, "BlockHold: another one is open");
  open_hold = this;
}

BlockHold::~BlockHold() {
  close();
  for (void* block : blocks_) {
    const auto found = counts().find(block);
    if (--found->second == 0) {
      counts().erase(found);
    }
  }
}

void BlockHold::close() {
  if (open_hold == this) {
    open_hold = nullptr;
  }
}

void BlockHold::handed_out(void* block) {
  if (open_hold != nullptr) {
    open_hold->blocks_.push_back(block);
    ++counts()[block];
  }
}

bool BlockHold::is_held(void* block) { return counts().contains(block); }

bool BlockHold::any() { return !counts().empty(); }

bool BlockHold::is_open() { return open_hold != nullptr; }

}  // namespace halftone
