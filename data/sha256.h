// SHA-256 (FIPS 180-4), for the checksums of checkpoints and fetched data. Uses the processor's SHA
// instructions where it has them (about 1.5 GB/s), plain code otherwise (about 200 MB/s); both give
// the same digest, as the tests check.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halftone {

/// A running SHA-256. Feed it with update() any number of times, then call digest() once.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  enum class Backend : uint8_t { automatic, portable };

  /// `portable` never uses the SHA instructions: for tests.
  explicit Sha256(Backend backend = Backend::automatic);

  void update(const void* data, size_t num_bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }

  /// Pads, and returns the digest. The object must not be fed afterwards.
  Digest digest();

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_{};
  size_t num_pending_ = 0;
  uint64_t num_bytes_ = 0;
  bool use_instructions_;
};

/// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256::Digest& digest);

/// to_hex of the digest of `num_bytes` at `data`.
std::string sha256_hex(const void* data, size_t num_bytes);

}  // namespace halftone
