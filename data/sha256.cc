#include "data/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace halftone {
namespace {

using State = std::array<uint32_t, 8>;

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64
// primes.
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// FIPS 180-4, 6.2.2.
void compress_portable(State& state, const uint8_t* blocks, size_t num_blocks) {
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) {
      w[t] = uint32_t{blocks[4 * t]} << 24 | uint32_t{blocks[4 * t + 1]} << 16 |
             uint32_t{blocks[4 * t + 2]} << 8 | uint32_t{blocks[4 * t + 3]};
    }
    for (int t = 16; t < 64; ++t) {
      const uint32_t sigma0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t sigma1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + sigma0 + w[t - 7] + sigma1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int t = 0; t < 64; ++t) {
      const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t choose = (e & f) ^ (~e & g);
      const uint32_t t1 = h + sum1 + choose + kRound[t] + w[t];
      const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      const uint32_t t2 = sum0 + majority;
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const State working = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) {
      state[i] += working[i];
    }
  }
}

#if defined(__x86_64__)

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0 || (c & bit_SSSE3) == 0) {
    return false;
  }
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

// The instructions keep the state as {a,b,e,f} and {c,d,g,h}, highest lane first, and do two rounds
// each.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_instructions(State& state,
                                                                       const uint8_t* blocks,
                                                                       size_t num_blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i abef = _mm_set_epi32(int(state[0]), int(state[1]), int(state[4]), int(state[5]));
  __m128i cdgh = _mm_set_epi32(int(state[2]), int(state[3]), int(state[6]), int(state[7]));
  for (; num_blocks > 0; --num_blocks, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // a window of 16 schedule words, four a register
    for (int i = 0; i < 4; ++i) {
      const auto* source = reinterpret_cast<const __m128i*>(blocks + 16 * i);
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(source), big_endian);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i >= 4) {  // w[t] = w[t-16] + sigma0(w[t-15]) + w[t-7] + sigma1(w[t-2]), four t at once
        __m128i next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
        w[i % 4] = _mm_sha256msg2_epu32(next, w[(i + 3) % 4]);
      }
      const auto* constants = reinterpret_cast<const __m128i*>(kRound + 4 * i);
      const __m128i words = _mm_add_epi32(w[i % 4], _mm_load_si128(constants));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  alignas(16) uint32_t out[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(out), abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(out + 4), cdgh);
  state = {out[3], out[2], out[7], out[6], out[1], out[0], out[5], out[4]};
}

#else

bool has_sha_instructions() { return false; }
void compress_instructions(State& state, const uint8_t* blocks, size_t num_blocks) {
  compress_portable(state, blocks, num_blocks);
}

#endif

void compress(State& state, const uint8_t* blocks, size_t num_blocks, bool use_instructions) {
  if (use_instructions) {
    compress_instructions(state, blocks, num_blocks);
  } else {
    compress_portable(state, blocks, num_blocks);
  }
}

}  // namespace

Sha256::Sha256(Backend backend)
    : state_{0x6a09e667,
             0xbb67ae85,
             0x3c6ef372,
             0xa54ff53a,
             0x510e527f,
             0x9b05688c,
             0x1f83d9ab,
             0x5be0cd19} {
  static const bool available = has_sha_instructions();
  use_instructions_ = available && backend == Backend::automatic;
}

void Sha256::update(const void* data, size_t num_bytes) {
  if (num_bytes == 0) {
    return;
  }
  const auto* bytes = static_cast<const uint8_t*>(data);
  num_bytes_ += num_bytes;
  if (num_pending_ > 0) {
    const size_t taken = std::min(num_bytes, pending_.size() - num_pending_);
    std::memcpy(pending_.data() + num_pending_, bytes, taken);
    num_pending_ += taken;
    bytes += taken;
    num_bytes -= taken;
    if (num_pending_ < pending_.size()) {
      return;
    }
    compress(state_, pending_.data(), 1, use_instructions_);
    num_pending_ = 0;
  }
  compress(state_, bytes, num_bytes / 64, use_instructions_);
  num_pending_ = num_bytes % 64;
  if (num_pending_ > 0) {
    std::memcpy(pending_.data(), bytes + num_bytes - num_pending_, num_pending_);
  }
}

Sha256::Digest Sha256::digest() {
  const uint64_t num_bits = num_bytes_ * 8;
  static constexpr uint8_t kPadding[64] = {0x80};
  const size_t num_padding = (num_pending_ < 56 ? 56 : 120) - num_pending_;
  update(kPadding, num_padding);
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) {
    length[i] = uint8_t(num_bits >> (56 - 8 * i));
  }
  update(length, sizeof length);
  Digest out;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = uint8_t(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return out;
}

std::string to_hex(const Sha256::Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * digest.size());
  for (const uint8_t byte : digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string sha256_hex(const void* data, size_t num_bytes) {
  Sha256 hash;
  hash.update(data, num_bytes);
  return to_hex(hash.digest());
}

}  // namespace halftone
