// What the parts of Hdf5File share: identifiers that close themselves, and the library's own reason
// for a failure. Included by data/hdf5_*.cc alone, so that no public header needs the HDF5 headers.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "data/files.h"

namespace halftone::hdf5 {

/// Any HDF5 identifier, closed by the function that belongs to its kind.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&&) = delete;
  ~Id() {
    if (id_ >= 0) {
      close_(id_);
    }
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// The description nearest to the cause in the library's error stack.
std::string reason();

/// Throws FileError("PATH: OBJECT: cannot ACTION: reason").
[[noreturn]] void fail(const std::filesystem::path& path,
                       std::string_view object,
                       std::string_view action);

}  // namespace halftone::hdf5
