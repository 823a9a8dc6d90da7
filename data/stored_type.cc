#include "data/stored_type.h"

#include <stdexcept>

namespace halftone {

size_t size_of(StoredType type) {
  switch (type) {
    case StoredType::u8:
      return 1;
    case StoredType::u16:
      return 2;
    case StoredType::u32:
    case StoredType::i32:
    case StoredType::f32:
      return 4;
    case StoredType::i64:
    case StoredType::f64:
      return 8;
  }
  throw std::logic_error("size_of: unknown StoredType");
}

std::string_view name_of(StoredType type) {
  constexpr std::string_view kNames[] = {"u8", "u16", "u32", "i32", "i64", "f32", "f64"};
  return kNames[size_t(type)];
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  }
  return text + "]";
}

int64_t num_elements(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    count *= dim;
  }
  return count;
}

}  // namespace halftone
