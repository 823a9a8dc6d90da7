// One run at a time writes a RUN.h5. The lock is an advisory flock on RUN.h5.lock, never on RUN.h5
// itself, so RUN.h5 can be read at any time; the operating system drops it when the process ends,
// however it ends, so a lock is never stale.
#pragma once

#include <filesystem>

namespace halftone {

/// Held from construction to destruction. The lock file stays behind, since removing it would race
/// with the next holder.
class RunLock {
 public:
  /// Locks `path`.lock, creating it where it is missing. Throws FileError naming the lock file and
  /// the holder's process where another run holds it, or with the operating system's reason.
  explicit RunLock(const std::filesystem::path& path);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace halftone
