// HDF5 files through the C API, as much of it as checkpoints and data sets need. A file is either
// built in memory and saved whole and atomically (replace_file), so HDF5 itself never writes to a
// disk that may be full, or opened for reading alone. HDF5 never converts a float for us (its
// 16-bit rounding is wrong): 16-bit and FP8 tensors are raw u16 and u8 datasets with a `dtype`
// attribute. The 1.8 format is written, since it checksums its own metadata. One thread at a time.
// Errors are FileErrors that name the file, the object and the reason; misuse is
// std::invalid_argument.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/stored_type.h"

namespace halftone {

struct DatasetInfo {
  StoredType type;
  Dims dims;
  std::string dtype;  ///< the `dtype` attribute ("bf16", "e4m3"), else the name of `type`

  int64_t num_elements() const { return halftone::num_elements(dims); }
  size_t num_bytes() const { return size_t(num_elements()) * size_of(type); }
};

using AttributeValue = std::variant<std::string, int64_t, double>;

/// `chunk` cut to `dims`, each side at least 1, then halved from the first axis on until a chunk is
/// below 4 GiB, the library's limit. Empty (contiguous storage) where `chunk` is empty or `dims`
/// has a zero or no axis.
Dims clamp_chunk(const Dims& dims, const Dims& chunk, StoredType type);

/// A file being built or read. Object names are absolute paths ("/param/fc1.weight"); "/" is the
/// root.
class Hdf5File {
 public:
  /// An empty file in memory; save() puts it on disk, and without it nothing is.
  static Hdf5File create();
  /// Opens for reading. A missing, empty, truncated or foreign file is a FileError, as is one that
  /// another program has open for writing. Our own writers never hold one: they rename a finished
  /// file into place.
  static Hdf5File open(const std::filesystem::path& path);

  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) noexcept;
  ~Hdf5File();

  /// Writes the whole file to `path` (replace_file: atomic, durable). The file in memory can be
  /// extended and saved again.
  void save(const std::filesystem::path& path) const;

  /// Creates the group and those above it; an existing group is left alone.
  void create_group(const std::string& name);

  /// A new dataset from `data`, row-major; groups above it are made. `chunk` asks for chunked
  /// storage (see clamp_chunk).
  template <class T>
  void write(const std::string& name,
             const Dims& dims,
             std::span<const T> data,
             const Dims& chunk = {}) {
    write_raw(name, kStoredTypeOf<T>, dims, data.data(), data.size_bytes(), chunk);
  }
  void write_raw(const std::string& name,
                 StoredType type,
                 const Dims& dims,
                 const void* data,
                 size_t num_bytes,
                 const Dims& chunk = {});

  bool has(const std::string& name) const;
  DatasetInfo info(const std::string& name) const;

  /// The whole dataset, which must hold exactly the type T: nothing is converted.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    std::vector<T> out(size_t(info(name).num_elements()));
    read_raw(name, kStoredTypeOf<T>, out.data(), out.size() * sizeof(T));
    return out;
  }
  /// The whole dataset into `out`; type and byte count must be those of the dataset.
  void read_raw(const std::string& name, StoredType type, void* out, size_t num_bytes) const;

  /// Attributes of a dataset or a group; setting one replaces it. Integers are stored as i64, reals
  /// as f64.
  void set_text(const std::string& object, const std::string& name, std::string_view value);
  void set_integer(const std::string& object, const std::string& name, int64_t value);
  void set_real(const std::string& object, const std::string& name, double value);
  bool has_attribute(const std::string& object, const std::string& name) const;
  /// Throws FileError where it is missing, or of another kind than asked.
  AttributeValue attribute(const std::string& object, const std::string& name) const;
  std::string text(const std::string& object, const std::string& name) const;
  int64_t integer(const std::string& object, const std::string& name) const;
  double real(const std::string& object, const std::string& name) const;

  /// Every group and dataset ("/" first), every dataset, the attributes of one object: in byte
  /// order of their names.
  std::vector<std::string> objects() const;
  std::vector<std::string> datasets() const;
  std::vector<std::string> attributes(const std::string& object) const;

  /// The path it was opened from, or "(new file)".
  const std::filesystem::path& path() const { return path_; }

 private:
  Hdf5File(int64_t id, std::filesystem::path path) : id_(id), path_(std::move(path)) {}
  void set_attribute(const std::string& object,
                     const std::string& name,
                     int64_t type,
                     const void* value);

  int64_t id_;  // hid_t; -1 once moved from
  std::filesystem::path path_;
};

}  // namespace halftone
