// Gzip, recognised by content and never by name: the first four bytes of a .gz read as a big-endian
// number are 529205256 (0x1F8B0808), a magic number that many users have met in an error message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace halftone {

bool is_gzip(std::span<const uint8_t> bytes);

/// The uncompressed content of one or more gzip members. `path` is for messages alone. Throws
/// FileError where the stream is truncated, damaged (its own CRC is checked), or followed by
/// anything else.
std::vector<uint8_t> gunzip(std::span<const uint8_t> bytes, const std::filesystem::path& path);

/// read_file, uncompressed where the content is gzip.
std::vector<uint8_t> read_maybe_gzip(const std::filesystem::path& path);

}  // namespace halftone
