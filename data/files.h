// Whole files: read with the operating system's reason in every message, and replaced so that a
// crash, a kill or a full disk at any instant leaves either the old file or the new one, never a
// mixture. Programs end with exit status 1 on a FileError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace halftone {

/// What is wrong with a file: its message starts with the path.
class FileError : public std::runtime_error {
 public:
  explicit FileError(const std::string& message) : std::runtime_error(message) {}
};

/// Throws FileError("PATH: " followed by the arguments).
template <class... Args>
[[noreturn]] void throw_file_error(const std::filesystem::path& path, const Args&... args) {
  throw FileError(concat(path.string(), ": ", args...));
}

/// The start of a text as part of a one-line message: at most 60 bytes, and a question mark for
/// each that does not print.
std::string excerpt(std::string_view text);

/// The bytes of a regular file. Throws FileError where it cannot be opened (with the reason), is a
/// folder, or shrinks meanwhile.
std::vector<uint8_t> read_file(const std::filesystem::path& path);

/// Makes `bytes` the whole content of `path`: written to PATH.tmp in the same folder, flushed to
/// disk, renamed over `path`, the folder flushed. On failure PATH.tmp is removed, `path` is as it
/// was, and the FileError carries the operating system's reason. A symbolic link is followed. One
/// writer a path at a time: a run holds RunLock (data/run_lock.h).
void replace_file(const std::filesystem::path& path, std::span<const uint8_t> bytes);

}  // namespace halftone
