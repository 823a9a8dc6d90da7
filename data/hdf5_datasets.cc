// Datasets of an Hdf5File: element types, shapes, chunks, whole and partial reads.
#include <hdf5.h>

#include <algorithm>
#include <iterator>

#include "core/check.h"
#include "data/files.h"
#include "data/hdf5_file.h"
#include "data/hdf5_internal.h"

namespace halftone {
using namespace hdf5;
namespace {

hid_t file_type(StoredType type) {
  switch (type) {
    case StoredType::u8:
      return H5T_STD_U8LE;
    case StoredType::u16:
      return H5T_STD_U16LE;
    case StoredType::u32:
      return H5T_STD_U32LE;
    case StoredType::i32:
      return H5T_STD_I32LE;
    case StoredType::i64:
      return H5T_STD_I64LE;
    case StoredType::f32:
      return H5T_IEEE_F32LE;
    case StoredType::f64:
      return H5T_IEEE_F64LE;
  }
  throw std::logic_error("hdf5: unknown StoredType");
}

hid_t memory_type(StoredType type) {
  switch (type) {
    case StoredType::u8:
      return H5T_NATIVE_UINT8;
    case StoredType::u16:
      return H5T_NATIVE_UINT16;
    case StoredType::u32:
      return H5T_NATIVE_UINT32;
    case StoredType::i32:
      return H5T_NATIVE_INT32;
    case StoredType::i64:
      return H5T_NATIVE_INT64;
    case StoredType::f32:
      return H5T_NATIVE_FLOAT;
    case StoredType::f64:
      return H5T_NATIVE_DOUBLE;
  }
  throw std::logic_error("hdf5: unknown StoredType");
}

constexpr StoredType kStoredTypes[] = {StoredType::u8,
                                       StoredType::u16,
                                       StoredType::u32,
                                       StoredType::i32,
                                       StoredType::i64,
                                       StoredType::f32,
                                       StoredType::f64};

// The StoredType whose values are exactly those of `type`, in either byte order.
bool stored_type_of(hid_t type, StoredType& out) {
  const H5T_class_t kind = H5Tget_class(type);
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) {
    return false;
  }
  const Id native(H5Tget_native_type(type, H5T_DIR_DEFAULT), H5Tclose);
  for (const StoredType candidate : kStoredTypes) {
    // A 16-bit float is "native float" to the library, which would convert it: its size must agree
    // too.
    if (H5Tequal(native, memory_type(candidate)) > 0 && H5Tget_size(type) == size_of(candidate)) {
      out = candidate;
      return true;
    }
  }
  return false;
}

std::vector<hsize_t> to_hsize(const Dims& dims) { return {dims.begin(), dims.end()}; }

Id make_space(const Dims& dims) {
  const std::vector<hsize_t> extent = to_hsize(dims);
  return Id(dims.empty() ? H5Screate(H5S_SCALAR)
                         : H5Screate_simple(int(dims.size()), extent.data(), nullptr),
            H5Sclose);
}

// The group that holds an object; empty for one at the root.
std::string parent_of(const std::string& name) { return name.substr(0, name.rfind('/')); }

}  // namespace

Dims clamp_chunk(const Dims& dims, const Dims& chunk, StoredType type) {
  if (chunk.empty() || dims.empty() || num_elements(dims) == 0) {
    return {};
  }
  HALFTONE_CHECK(chunk.size() == dims.size(),
                 "clamp_chunk: chunk ",
                 to_string(chunk),
                 " and shape ",
                 to_string(dims),
                 " differ in rank");
  Dims out(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    out[i] = std::clamp<int64_t>(chunk[i], 1, dims[i]);
  }
  const int64_t limit = ((int64_t{1} << 32) - 1) / int64_t(size_of(type));
  for (int64_t& side : out) {
    while (side > 1 && num_elements(out) > limit) {
      side = (side + 1) / 2;
    }
  }
  return out;
}

void Hdf5File::create_group(const std::string& name) {
  if (name.empty() || name == "/" || has(name)) {
    return;
  }
  create_group(parent_of(name));
  const Id layout(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(layout, 0);  // the same content gives the same file
  const Id group(H5Gcreate2(id_, name.c_str(), H5P_DEFAULT, layout, H5P_DEFAULT), H5Gclose);
  if (group < 0) {
    fail(path_, name, "create the group");
  }
}

void Hdf5File::write_raw(const std::string& name,
                         StoredType type,
                         const Dims& dims,
                         const void* data,
                         size_t num_bytes,
                         const Dims& chunk) {
  HALFTONE_CHECK(std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; }) &&
                     size_t(num_elements(dims)) * size_of(type) == num_bytes,
                 "hdf5: ",
                 name,
                 ": ",
                 num_bytes,
                 " bytes given for ",
                 name_of(type),
                 " ",
                 to_string(dims));
  create_group(parent_of(name));
  const Id layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(layout, 0);  // the same content gives the same file
  if (const Dims side = clamp_chunk(dims, chunk, type); !side.empty()) {
    H5Pset_chunk(layout, int(side.size()), to_hsize(side).data());
  }
  const Id space = make_space(dims);
  const Id dataset(
      H5Dcreate2(id_, name.c_str(), file_type(type), space, H5P_DEFAULT, layout, H5P_DEFAULT),
      H5Dclose);
  if (dataset < 0) {
    fail(path_, name, "create the dataset");
  }
  if (num_bytes > 0 &&
      H5Dwrite(dataset, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
    fail(path_, name, "write");
  }
}

bool Hdf5File::has(const std::string& name) const {
  // H5Lexists wants every group on the way to exist, so it is asked level by level.
  for (size_t end = name.find('/', 1); end != std::string::npos; end = name.find('/', end + 1)) {
    if (H5Lexists(id_, name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) {
      return false;
    }
  }
  return name == "/" || H5Lexists(id_, name.c_str(), H5P_DEFAULT) > 0;
}

DatasetInfo Hdf5File::info(const std::string& name) const {
  if (!has(name)) {
    throw_file_error(path_, "has no dataset ", name);
  }
  const Id dataset(H5Dopen2(id_, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (dataset < 0) {
    fail(path_, name, "open the dataset");
  }
  const Id type(H5Dget_type(dataset), H5Tclose);
  const Id space(H5Dget_space(dataset), H5Sclose);
  DatasetInfo out{};
  if (!stored_type_of(type, out.type)) {
    throw_file_error(
        path_,
        name,
        ": its element type (",
        H5Tget_size(type),
        " bytes) is none of u8, u16, u32, i32, i64, f32, f64; 16-bit floats are stored "
        "as u16 with a dtype attribute");
  }
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extent(size_t(std::max(rank, 0)));
  if (rank < 0 || H5Sget_simple_extent_dims(space, extent.data(), nullptr) < 0) {
    fail(path_, name, "read the shape");
  }
  out.dims.assign(extent.begin(), extent.end());
  out.dtype = has_attribute(name, "dtype") ? text(name, "dtype") : std::string(name_of(out.type));
  return out;
}

void Hdf5File::read_raw(const std::string& name,
                        StoredType type,
                        void* out,
                        size_t num_bytes) const {
  const DatasetInfo found = info(name);
  if (found.type != type || found.num_bytes() != num_bytes) {
    throw_file_error(path_,
                     name,
                     ": is ",
                     name_of(found.type),
                     " ",
                     to_string(found.dims),
                     " (",
                     found.num_bytes(),
                     " bytes), expected ",
                     name_of(type),
                     " of ",
                     num_bytes,
                     " bytes");
  }
  const Id dataset(H5Dopen2(id_, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (num_bytes > 0 &&
      H5Dread(dataset, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0) {
    fail(path_, name, "read");
  }
}

}  // namespace halftone
