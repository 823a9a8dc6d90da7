// Element types of arrays in files (HDF5 datasets, .npy) and the shapes of arrays. What a tensor in
// memory may hold is DType (core/dtype.h); files also have u32, and never a 16-bit float as such.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halftone {

/// Element types of datasets, as stored: little-endian integers and IEEE floats.
enum class StoredType : uint8_t { u8, u16, u32, i32, i64, f32, f64 };

size_t size_of(StoredType type);
std::string_view name_of(StoredType type);

template <class T>
inline constexpr StoredType kStoredTypeOf = [] {
  static_assert(sizeof(T) == 0, "no StoredType for this type");
  return StoredType::u8;
}();
template <>
inline constexpr StoredType kStoredTypeOf<uint8_t> = StoredType::u8;
template <>
inline constexpr StoredType kStoredTypeOf<uint16_t> = StoredType::u16;
template <>
inline constexpr StoredType kStoredTypeOf<uint32_t> = StoredType::u32;
template <>
inline constexpr StoredType kStoredTypeOf<int32_t> = StoredType::i32;
template <>
inline constexpr StoredType kStoredTypeOf<int64_t> = StoredType::i64;
template <>
inline constexpr StoredType kStoredTypeOf<float> = StoredType::f32;
template <>
inline constexpr StoredType kStoredTypeOf<double> = StoredType::f64;

using Dims = std::vector<int64_t>;

/// "[60000, 28, 28]"
std::string to_string(const Dims& dims);

/// The product of `dims`; 1 for none.
int64_t num_elements(const Dims& dims);

/// Integers of type T, as stored one behind the other, as i64.
template <class T>
std::vector<int64_t> widen_integers(std::span<const uint8_t> bytes) {
  std::vector<int64_t> out(bytes.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = int64_t(value);
  }
  return out;
}

}  // namespace halftone
