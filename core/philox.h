// Counter-based random numbers, Philox4x32-10, host and device: a draw is a pure function of (seed,
// purpose, iteration, micro-batch, element), so it is the same on both sides, whatever the threads,
// blocks and order of evaluation.
//   key      64 bits: mix64(mix64(seed) + fnv1a64(purpose)); purpose is the op's module path, as in
//   "blocks.0.mlp.dropout" counter  words {element / 4 low, element / 4 high, micro-batch,
//   iteration}; element e takes word e % 4 of the block
// Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"; FNV-1a;
// splitmix64's finaliser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/device.h"

namespace halftone {

struct PhiloxKey {
  uint32_t word[2];
};
struct PhiloxBlock {
  uint32_t word[4];
};

/// Ten rounds of Philox4x32.
HALFTONE_HD constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53u} * counter.word[0];
    const uint64_t product1 = uint64_t{0xcd9e8d57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.word[0],
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.word[1],
                static_cast<uint32_t>(product0)}};
    key.word[0] += 0x9e3779b9u;
    key.word[1] += 0xbb67ae85u;
  }
  return counter;
}

/// The key of a seed and a purpose, as the head of this file says.
PhiloxKey philox_key(uint64_t seed, std::string_view purpose);

/// The draws of one purpose in one micro-batch of one iteration.
struct RandomStream {
  PhiloxKey key;
  uint32_t iteration = 0;
  uint32_t micro_batch = 0;

  /// Draws 4 * index to 4 * index + 3.
  HALFTONE_HD constexpr PhiloxBlock block(uint64_t index) const {
    return philox4x32_10({{static_cast<uint32_t>(index),
                           static_cast<uint32_t>(index >> 32),
                           micro_batch,
                           iteration}},
                         key);
  }
  /// 32 random bits. Neighbours share a block: code that needs four calls block once.
  HALFTONE_HD constexpr uint32_t draw(uint64_t element) const {
    return block(element / 4).word[element % 4];
  }
};

/// draws[i] = stream.draw(first + i) for n elements, on the calling thread.
void fill_draws(const RandomStream& stream, uint64_t first, size_t n, uint32_t* draws);

/// A whole number in [0, n): words 0 and 1 of a block as 64 bits, scaled. Favours none by more than
/// n / 2^64.
HALFTONE_HD constexpr uint64_t scaled_index(const PhiloxBlock& block, uint64_t n) {
  const uint64_t bits = uint64_t{block.word[1]} << 32 | block.word[0];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(n) * bits >> 64);
}

/// A multiple of 2^-24 in [0, 1).
HALFTONE_HD constexpr float uniform(uint32_t draw) {
  return static_cast<float>(draw >> 8) * 0x1p-24f;
}

}  // namespace halftone
