#include "data/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace halftone {
namespace {

namespace fs = std::filesystem;

// Closes on every way out; close_checked() is for written files, whose last error may only show on
// close.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  bool close_checked() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

std::string reason() { return std::strerror(errno); }

bool write_all(int fd, std::span<const uint8_t> bytes) {
  constexpr size_t kPiece = size_t{1} << 30;  // Linux writes less than 2 GiB a call
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min(bytes.size(), kPiece));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    bytes = bytes.subspan(size_t(written));
  }
  return true;
}

// The steps up to and including the rename; false with errno set, so that the caller removes the
// temporary file in one place.
bool write_and_rename(const fs::path& temporary,
                      const fs::path& target,
                      std::span<const uint8_t> bytes) {
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file.is_open() && write_all(file.get(), bytes) && ::fsync(file.get()) == 0 &&
         file.close_checked() && ::rename(temporary.c_str(), target.c_str()) == 0;
}

}  // namespace

std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string shown(text.substr(0, kMost));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text.size() > kMost ? shown + "..." : shown;
}

std::vector<uint8_t> read_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    throw_file_error(path, "cannot read: ", reason());
  }
  if (!S_ISREG(status.st_mode)) {
    throw_file_error(path,
                     S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file",
                     ", expected a file");
  }
  std::vector<uint8_t> bytes(size_t(status.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw_file_error(path, "cannot read: ", reason());
    }
    if (got == 0) {
      throw_file_error(path, "shrank while it was read: ", done, " of ", bytes.size(), " bytes");
    }
    done += size_t(got);
  }
  return bytes;
}

void replace_file(const fs::path& path, std::span<const uint8_t> bytes) {
  std::error_code ignored;
  const fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path) : path;
  // Renaming over a device such as /dev/null would replace the device itself.
  if (fs::exists(target, ignored) && !fs::is_regular_file(target, ignored)) {
    throw_file_error(path, "cannot write: it exists and is not a regular file");
  }
  fs::path temporary = target;
  temporary += ".tmp";
  if (!write_and_rename(temporary, target, bytes)) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw_file_error(path,
                     "cannot write ",
                     bytes.size(),
                     " bytes: ",
                     std::strerror(error),
                     "; what was there before is untouched");
  }
  // The rename itself must survive a power cut. A file system without fsync on folders (EINVAL)
  // keeps its own promises.
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.is_open() && ::fsync(opened.get()) != 0 && errno != EINVAL) {
    throw_file_error(folder, "cannot flush the folder to disk: ", reason());
  }
}

}  // namespace halftone
