// Opening, saving and listing. Datasets are in hdf5_datasets.cc, attributes in hdf5_attributes.cc.
#include "data/hdf5_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "data/files.h"
#include "data/hdf5_internal.h"

namespace halftone {

namespace hdf5 {

std::string reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT,
      H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        auto& nearest = *static_cast<std::string*>(out);
        if (nearest.empty() && error->desc != nullptr) {
          nearest = error->desc;
        }
        return 0;
      },
      &text);
  return text.empty() ? "the HDF5 library gives no reason" : text;
}

void fail(const std::filesystem::path& path, std::string_view object, std::string_view action) {
  throw_file_error(path, object, ": cannot ", action, ": ", reason());
}

}  // namespace hdf5

using namespace hdf5;

// The library prints a page on every error unless told not to; its reasons go into our messages
// instead.
static void silence_errors() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

Hdf5File Hdf5File::create() {
  silence_errors();
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access, size_t{4} << 20, /*backing_store=*/0);
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  // No pooling of small pieces: a saved image then has almost no unused bytes that a checksum could
  // not see.
  H5Pset_meta_block_size(access, 0);
  H5Pset_small_data_block_size(access, 0);
  // The name is never opened, but the library wants one; distinct files may share it.
  const Id layout(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(layout, 0);  // of the root group: the same content gives the same file
  const hid_t id = H5Fcreate("halftone-in-memory", H5F_ACC_TRUNC, layout, access);
  if (id < 0) {
    fail("(new file)", "HDF5", "create a file");
  }
  return Hdf5File(id, "(new file)");
}

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  silence_errors();
  // Asked first, for the operating system's own words.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  const bool readable = fd >= 0 && ::fstat(fd, &status) == 0;
  const int error = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  if (!readable) {
    throw_file_error(path, "cannot open: ", std::strerror(error));
  }
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    throw_file_error(path,
                     S_ISREG(status.st_mode) ? "is empty" : "is not a regular file",
                     ", expected an HDF5 file");
  }
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 10, 7)
  // File systems without locks are fine; a lock that another program holds is not.
  H5Pset_file_locking(access, /*use_file_locking=*/1, /*ignore_when_disabled=*/1);
#endif
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (id < 0) {
    const std::string why = reason();
    if (why.find("unable to lock") != std::string::npos) {
      throw_file_error(
          path,
          "another program has this HDF5 file open for writing (",
          why,
          "); close it there, or set HDF5_USE_FILE_LOCKING=FALSE to read it all the same");
    }
    throw_file_error(path, "is not a whole HDF5 file (", status.st_size, " bytes): ", why);
  }
  return Hdf5File(id, path);
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : id_(std::exchange(other.id_, -1)), path_(std::move(other.path_)) {}

Hdf5File& Hdf5File::operator=(Hdf5File&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(path_, other.path_);
  return *this;
}

Hdf5File::~Hdf5File() {
  if (id_ >= 0) {
    H5Fclose(id_);
  }
}

void Hdf5File::save(const std::filesystem::path& path) const {
  if (H5Fflush(id_, H5F_SCOPE_LOCAL) < 0) {
    fail(path, "HDF5", "flush");
  }
  // The in-memory driver's handle is its buffer. H5Fget_file_image would copy it, and in 1.10.8 it
  // clears a field of the superblock without renewing the superblock's checksum.
  const ssize_t size = H5Fget_file_image(id_, nullptr, 0);
  void* image = nullptr;
  if (size <= 0 || H5Fget_vfd_handle(id_, H5P_DEFAULT, &image) < 0 || image == nullptr) {
    fail(path, "HDF5", "take the image of the file");
  }
  const auto* bytes = *static_cast<const uint8_t* const*>(image);
  replace_file(path, {bytes, size_t(size)});
}

namespace {

// Names of the hard links of a group; other links of foreign files may lead anywhere and are not
// followed.
std::vector<std::string> children(hid_t file, const std::string& group_name) {
  const Id group(H5Gopen2(file, group_name.c_str(), H5P_DEFAULT), H5Gclose);
  H5G_info_t group_info{};
  std::vector<std::string> names;
  if (group < 0 || H5Gget_info(group, &group_info) < 0) {
    return names;
  }
  for (hsize_t i = 0; i < group_info.nlinks; ++i) {
    char buffer[1024];
    const ssize_t length = H5Lget_name_by_idx(
        group, ".", H5_INDEX_NAME, H5_ITER_INC, i, buffer, sizeof buffer, H5P_DEFAULT);
    H5L_info_t link{};
    if (length > 0 && size_t(length) < sizeof buffer &&
        H5Lget_info(group, buffer, &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD) {
      names.emplace_back(buffer, size_t(length));
    }
  }
  return names;
}

struct Object {
  std::string name;
  bool is_dataset;
};

void collect(hid_t file, const std::string& name, int depth, std::vector<Object>& out) {
  const Id object(H5Oopen(file, name.c_str(), H5P_DEFAULT), H5Oclose);
  const H5I_type_t kind = object < 0 ? H5I_BADID : H5Iget_type(object);
  if (kind == H5I_DATASET || kind == H5I_GROUP) {
    out.push_back({name, kind == H5I_DATASET});
  }
  constexpr int kMaxDepth = 64;  // a foreign file's groups may form a cycle
  if (kind == H5I_GROUP && depth < kMaxDepth) {
    for (const std::string& child : children(file, name)) {
      collect(file, name == "/" ? "/" + child : name + "/" + child, depth + 1, out);
    }
  }
}

std::vector<Object> sorted_objects(hid_t file) {
  std::vector<Object> out;
  collect(file, "/", 0, out);
  std::sort(
      out.begin(), out.end(), [](const Object& a, const Object& b) { return a.name < b.name; });
  return out;
}

}  // namespace

std::vector<std::string> Hdf5File::objects() const {
  std::vector<std::string> names;
  for (Object& object : sorted_objects(id_)) {
    names.push_back(std::move(object.name));
  }
  return names;
}

std::vector<std::string> Hdf5File::datasets() const {
  std::vector<std::string> names;
  for (Object& object : sorted_objects(id_)) {
    if (object.is_dataset) {
      names.push_back(std::move(object.name));
    }
  }
  return names;
}

}  // namespace halftone
