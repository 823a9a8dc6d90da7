#include "data/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "data/files.h"

namespace halftone {
namespace {

// The holder's process number, which it writes into the lock file for this message alone.
std::string holder(int fd) {
  char text[24] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  std::string digits(text, size_t(std::max<ssize_t>(got, 0)));
  digits.erase(
      std::find_if(digits.begin(), digits.end(), [](char c) { return c < '0' || c > '9'; }),
      digits.end());
  return digits.empty() ? "" : " (process " + digits + ")";
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& path) {
  // Where replace_file writes: one lock for a file and the symbolic links to it.
  std::error_code ignored;
  std::filesystem::path lock =
      std::filesystem::is_symlink(path, ignored) ? std::filesystem::weakly_canonical(path) : path;
  lock += ".lock";
  fd_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw_file_error(lock, "cannot create the lock file: ", std::strerror(errno));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string who = holder(fd_);
    ::close(fd_);
    if (error == EWOULDBLOCK) {
      throw_file_error(path,
                       "another run",
                       who,
                       " is writing it (it holds ",
                       lock.string(),
                       "); wait for it to end, or choose another --out");
    }
    throw_file_error(lock, "cannot lock: ", std::strerror(error));
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  // Informative only: a failure to note the process number does not weaken the lock.
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, pid.data(), pid.size(), 0) < 0) {
    errno = 0;
  }
}

RunLock::~RunLock() { ::close(fd_); }

}  // namespace halftone
