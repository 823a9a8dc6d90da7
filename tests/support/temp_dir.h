// A folder of its own for one test, removed with all it holds at the end of the scope.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace halftone::test {

class TempDir {
 public:
  /// Makes a new empty folder in the system's temporary folder. Throws std::system_error.
  TempDir() : path_(std::filesystem::temp_directory_path() / "halftone-XXXXXX") {
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + name);
    }
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  /// The path of a file in the folder.
  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace halftone::test
