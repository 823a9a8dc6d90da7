// Attributes of an Hdf5File: texts of fixed length (UTF-8), i64 and f64. Foreign files may hold
// variable-length texts and other integers.
#include <hdf5.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "data/files.h"
#include "data/hdf5_file.h"
#include "data/hdf5_internal.h"

namespace halftone {
using namespace hdf5;

void Hdf5File::set_attribute(const std::string& object,
                             const std::string& name,
                             int64_t type,
                             const void* value) {
  if (H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT) > 0) {
    H5Adelete_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT);
  }
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Id attribute(
      H5Acreate_by_name(
          id_, object.c_str(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  if (attribute < 0 || H5Awrite(attribute, type, value) < 0) {
    fail(path_, object + "@" + name, "write the attribute");
  }
}

void Hdf5File::set_text(const std::string& object,
                        const std::string& name,
                        std::string_view value) {
  HALFTONE_CHECK(value.find('\0') == std::string_view::npos,
                 "hdf5: ",
                 object,
                 "@",
                 name,
                 ": the text holds a NUL");
  const std::string terminated(value);
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, terminated.size() + 1);
  H5Tset_cset(type, H5T_CSET_UTF8);
  set_attribute(object, name, type, terminated.c_str());
}

void Hdf5File::set_integer(const std::string& object, const std::string& name, int64_t value) {
  set_attribute(object, name, H5T_STD_I64LE, &value);
}

void Hdf5File::set_real(const std::string& object, const std::string& name, double value) {
  set_attribute(object, name, H5T_IEEE_F64LE, &value);
}

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  return has(object) && H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

AttributeValue Hdf5File::attribute(const std::string& object, const std::string& name) const {
  if (!has_attribute(object, name)) {
    throw_file_error(path_, object, " has no attribute ", name);
  }
  const std::string where = object + "@" + name;
  const Id attribute(H5Aopen_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose);
  if (attribute < 0) {
    fail(path_, where, "open the attribute");
  }
  const Id type(H5Aget_type(attribute), H5Tclose);
  const Id space(H5Aget_space(attribute), H5Sclose);
  if (H5Sget_simple_extent_npoints(space) != 1) {
    throw_file_error(path_, where, ": expected one value");
  }
  switch (H5Tget_class(type)) {
    case H5T_STRING: {
      if (H5Tis_variable_str(type) > 0) {
        char* text = nullptr;
        if (H5Aread(attribute, type, &text) < 0) {
          fail(path_, where, "read");
        }
        const std::string out = text == nullptr ? "" : text;
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, &text);
        return out;
      }
      std::string text(H5Tget_size(type), '\0');
      if (H5Aread(attribute, type, text.data()) < 0) {
        fail(path_, where, "read");
      }
      text.resize(std::strlen(text.c_str()));
      return text;
    }
    case H5T_INTEGER: {
      int64_t value = 0;
      if (H5Aread(attribute, H5T_NATIVE_INT64, &value) < 0) {
        fail(path_, where, "read");
      }
      return value;
    }
    case H5T_FLOAT: {
      if (H5Tget_size(type) != sizeof(double)) {
        throw_file_error(path_, where, ": expected an f64");
      }
      double value = 0;
      if (H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) < 0) {
        fail(path_, where, "read");
      }
      return value;
    }
    default:
      throw_file_error(path_, where, ": expected a text, an integer or a real number");
  }
}

std::string Hdf5File::text(const std::string& object, const std::string& name) const {
  AttributeValue value = attribute(object, name);
  if (auto* text = std::get_if<std::string>(&value)) {
    return std::move(*text);
  }
  throw_file_error(path_, object, "@", name, ": expected a text, found a number");
}

int64_t Hdf5File::integer(const std::string& object, const std::string& name) const {
  const AttributeValue value = attribute(object, name);
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return *integer;
  }
  throw_file_error(path_, object, "@", name, ": expected an integer");
}

double Hdf5File::real(const std::string& object, const std::string& name) const {
  const AttributeValue value = attribute(object, name);
  if (const auto* real = std::get_if<double>(&value)) {
    return *real;
  }
  throw_file_error(path_, object, "@", name, ": expected a real number (f64)");
}

std::vector<std::string> Hdf5File::attributes(const std::string& object) const {
  const Id opened(H5Oopen(id_, object.c_str(), H5P_DEFAULT), H5Oclose);
  if (opened < 0) {
    throw_file_error(path_, "has no object ", object);
  }
  std::vector<std::string> names;
  H5Aiterate2(
      opened,
      H5_INDEX_NAME,
      H5_ITER_INC,
      nullptr,
      [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
        static_cast<std::vector<std::string>*>(out)->emplace_back(name);
        return 0;
      },
      &names);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace halftone
