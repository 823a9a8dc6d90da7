// Data sets known by name: where they are looked for, and how data/fetch.sh is asked for them. An
// order that never changes: $HALFTONE_DATA/NAME, the user's cache ($XDG_CACHE_HOME or ~/.cache,
// halftone/NAME), then data/fetch.sh NAME into that cache.
#pragma once

#include <filesystem>
#include <string>

namespace halftone {

/// Names that load without a file: data/synthetic.h.
inline constexpr const char* kSyntheticName = "synthetic";

/// Whether `name` is mnist, tinyshakespeare or its alias shakespeare. A path of the same name is
/// written ./mnist.
bool is_known_data(const std::string& name);

/// The folder of mnist's four IDX files, or the text file of tinyshakespeare, fetched where it is
/// missing. Throws FileError that says where it was looked for and what to do.
std::filesystem::path locate_known_data(const std::string& name);

}  // namespace halftone
