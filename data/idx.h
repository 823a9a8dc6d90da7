// The IDX format of MNIST: a magic number (two zero bytes, the element type, the number of
// dimensions), the dimensions as big-endian 32-bit numbers, then the elements. Gzip is recognised
// by content. Everything is checked before it is believed. Source: the description on the MNIST
// page of LeCun, Cortes and Burges.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/stored_type.h"

namespace halftone {

/// Unsigned bytes, row-major.
struct ByteArray {
  Dims dims;
  std::vector<uint8_t> bytes;
};

/// The u8 array of `rank` dimensions in an (uncompressed) IDX file's content; `path` is for
/// messages alone. Throws FileError naming what was expected and found: magic, element type, rank,
/// byte order, or size.
ByteArray parse_idx(std::span<const uint8_t> content, int rank, const std::filesystem::path& path);

/// parse_idx of a file, gzip or not.
ByteArray read_idx(const std::filesystem::path& path, int rank);

/// The IDX file of `stem` ("train-images") and `rank` in `folder`, in either spelling
/// ("-idx3-ubyte", ".idx3-ubyte"), with or without ".gz" behind it.
std::optional<std::filesystem::path> find_idx(const std::filesystem::path& folder,
                                              const std::string& stem,
                                              int rank);

/// The content of an IDX file (not compressed) holding `array`; for generated data sets and tests.
std::vector<uint8_t> format_idx(const ByteArray& array);

}  // namespace halftone
