// The checksum of a whole HDF5 file, kept inside it: HDF5 reads flipped bytes back without
// complaint. SHA-256 over every dataset and attribute but /checksum itself, in byte order of their
// names; an attribute's name is that of its object, '@' and its own ("/@config",
// "/param/fc1.weight@dtype"). Each entry feeds, in this order: its name, a zero byte, its type and
// shape as text ("f32 [256, 784]", "text", "i64", "f64"), a zero byte, its bytes (little-endian,
// row-major).
#pragma once

#include <string>

#include "data/hdf5_file.h"

namespace halftone {

/// Where the checksum stands: a u8 [32] dataset.
inline constexpr const char* kChecksumName = "/checksum";

/// The 32 bytes as 64 hexadecimal digits, computed from what `file` holds now.
std::string compute_checksum(const Hdf5File& file);

/// Adds /checksum; to be called last, once. Throws FileError where there is one already.
void write_checksum(Hdf5File& file);

/// Throws FileError where /checksum is missing or does not belong to the content.
void verify_checksum(const Hdf5File& file);

}  // namespace halftone
