#include "core/philox.h"

#include <algorithm>

namespace halftone {
namespace {

uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr size_t kLanes = 32;  // fewer are unrolled into scalars by g++ 12: half as fast

// Blocks first to first + kLanes - 1 of the stream, word by word side by side, which vectorises.
void fill_lanes(const RandomStream& stream, uint64_t first, uint32_t* draws) {
  uint32_t word[4][kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t index = first + lane;
    word[0][lane] = static_cast<uint32_t>(index);
    word[1][lane] = static_cast<uint32_t>(index >> 32);
    word[2][lane] = stream.micro_batch;
    word[3][lane] = stream.iteration;
  }
  PhiloxKey key = stream.key;
  for (int round = 0; round < 10; ++round) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t p0 = uint64_t{0xd2511f53u} * word[0][lane];
      const uint64_t p1 = uint64_t{0xcd9e8d57u} * word[2][lane];
      word[0][lane] = static_cast<uint32_t>(p1 >> 32) ^ word[1][lane] ^ key.word[0];
      word[1][lane] = static_cast<uint32_t>(p1);
      word[2][lane] = static_cast<uint32_t>(p0 >> 32) ^ word[3][lane] ^ key.word[1];
      word[3][lane] = static_cast<uint32_t>(p0);
    }
    key.word[0] += 0x9e3779b9u;
    key.word[1] += 0xbb67ae85u;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t w = 0; w < 4; ++w) {
      draws[4 * lane + w] = word[w][lane];
    }
  }
}

}  // namespace

PhiloxKey philox_key(uint64_t seed, std::string_view purpose) {
  const uint64_t key = mix64(mix64(seed) + fnv1a64(purpose));
  return {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
}

void fill_draws(const RandomStream& stream, uint64_t first, size_t n, uint32_t* draws) {
  size_t i = 0;
  for (; i < n && (first + i) % 4 != 0; ++i) {
    draws[i] = stream.draw(first + i);
  }
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    fill_lanes(stream, (first + i) / 4, draws + i);
  }
  for (; i < n; ++i) {
    draws[i] = stream.draw(first + i);
  }
}

}  // namespace halftone
