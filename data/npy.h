// NumPy's .npy format, versions 1 to 3: read defensively, in C order, either byte order.
// Source: the numpy.lib.format documentation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "data/stored_type.h"

namespace halftone {

/// A row-major array in this machine's byte order.
struct NpyArray {
  StoredType type;
  Dims dims;
  std::vector<uint8_t> bytes;
};

/// Whether the content starts like a .npy file.
bool is_npy(std::span<const uint8_t> content);

/// Throws FileError where the header cannot be understood, the array is in Fortran order, its
/// element type is none of u1 u2 u4 i4 i8 f4 f8, or the size disagrees. `path` is for messages
/// alone.
NpyArray parse_npy(std::span<const uint8_t> content, const std::filesystem::path& path);

/// parse_npy of a file.
NpyArray read_npy(const std::filesystem::path& path);

/// The elements of an array of integers as i64, whatever their width. Throws FileError where they
/// are floats.
std::vector<int64_t> to_integers(const NpyArray& array, const std::filesystem::path& path);

}  // namespace halftone
