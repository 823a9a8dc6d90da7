#include "data/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "data/files.h"

namespace halftone {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The value that follows 'key': in the header, a Python dictionary, without leading spaces.
std::string_view value_of(std::string_view header,
                          std::string_view key,
                          const std::filesystem::path& path) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    if (const size_t at = header.find(quoted); at != std::string_view::npos) {
      const size_t colon = header.find(':', at + quoted.size());
      const size_t begin =
          colon == std::string_view::npos ? colon : header.find_first_not_of(' ', colon + 1);
      if (begin != std::string_view::npos) {
        return header.substr(begin);
      }
    }
  }
  throw_file_error(path, "its .npy header has no '", key, "': ", excerpt(header));
}

// "<f4" and the like: byte order, kind, size.
StoredType parse_type(std::string_view descr, bool& swapped, const std::filesystem::path& path) {
  struct Name {
    std::string_view text;
    StoredType type;
  };
  constexpr Name kNames[] = {{"u1", StoredType::u8},
                             {"u2", StoredType::u16},
                             {"u4", StoredType::u32},
                             {"i4", StoredType::i32},
                             {"i8", StoredType::i64},
                             {"f4", StoredType::f32},
                             {"f8", StoredType::f64}};
  const size_t end = descr.empty() ? 0 : descr.find(descr[0], 1);
  const std::string_view text =
      end == 0 || end == std::string_view::npos ? descr : descr.substr(1, end - 1);
  for (const Name& name : kNames) {
    if (text.size() == 3 && text.substr(1) == name.text &&
        std::string_view("<>|=").find(text[0]) != std::string_view::npos) {
      static_assert(std::endian::native == std::endian::little);
      swapped = text[0] == '>';
      return name.type;
    }
  }
  throw_file_error(path,
                   "element type ",
                   excerpt(text),
                   ", expected one of u1 u2 u4 i4 i8 f4 f8; convert it with astype()");
}

Dims parse_shape(std::string_view text, const std::filesystem::path& path) {
  const size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos) {
    throw_file_error(path, "its .npy header has no readable shape");
  }
  Dims dims;
  const char* at = text.data() + 1;
  const char* const end = text.data() + close;
  while (at != end) {
    if (*at == ' ' || *at == ',' || *at == 'L') {  // Python 2 wrote long integers as 5L
      ++at;
      continue;
    }
    int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc() || dim < 0) {
      throw_file_error(
          path, "its .npy header has no readable shape: ", excerpt(text.substr(0, close + 1)));
    }
    dims.push_back(dim);
    at = next;
  }
  return dims;
}

}  // namespace

bool is_npy(std::span<const uint8_t> content) {
  return content.size() >= kMagic.size() &&
         std::memcmp(content.data(), kMagic.data(), kMagic.size()) == 0;
}

NpyArray parse_npy(std::span<const uint8_t> content, const std::filesystem::path& path) {
  if (!is_npy(content)) {
    throw_file_error(path,
                     content.empty() ? "is empty" : "does not start with \\x93NUMPY",
                     ", expected a .npy file");
  }
  const int major = content.size() > 6 ? content[6] : 0;
  const size_t prefix = major == 1 ? 10 : 12;
  if (major < 1 || major > 3 || content.size() < prefix) {
    throw_file_error(path, ".npy version ", major, ", expected 1, 2 or 3");
  }
  size_t header_size = size_t{content[8]} | size_t{content[9]} << 8;
  if (major > 1) {
    header_size |= size_t{content[10]} << 16 | size_t{content[11]} << 24;
  }
  if (content.size() - prefix < header_size) {
    throw_file_error(path,
                     "is truncated: ",
                     content.size(),
                     " bytes, its header alone needs ",
                     prefix + header_size);
  }
  const std::string_view header(reinterpret_cast<const char*>(content.data()) + prefix,
                                header_size);

  NpyArray out{};
  bool swapped = false;
  out.type = parse_type(value_of(header, "descr", path), swapped, path);
  if (!value_of(header, "fortran_order", path).starts_with("False")) {
    throw_file_error(path, "is stored in Fortran order; save numpy.ascontiguousarray(x) instead");
  }
  out.dims = parse_shape(value_of(header, "shape", path), path);

  const std::span<const uint8_t> elements = content.subspan(prefix + header_size);
  double expected =
      double(size_of(out.type));  // a double cannot wrap around, whatever the header claims
  for (const int64_t dim : out.dims) {
    expected *= double(dim);
  }
  if (double(elements.size()) != expected) {
    throw_file_error(path,
                     double(elements.size()) < expected ? "is truncated" : "is too long",
                     ": its header says ",
                     name_of(out.type),
                     " ",
                     to_string(out.dims),
                     ", and ",
                     elements.size(),
                     " bytes follow");
  }
  out.bytes.assign(elements.begin(), elements.end());
  if (swapped) {
    for (size_t i = 0; i < out.bytes.size(); i += size_of(out.type)) {
      std::reverse(out.bytes.begin() + ptrdiff_t(i),
                   out.bytes.begin() + ptrdiff_t(i + size_of(out.type)));
    }
  }
  return out;
}

NpyArray read_npy(const std::filesystem::path& path) { return parse_npy(read_file(path), path); }

std::vector<int64_t> to_integers(const NpyArray& array, const std::filesystem::path& path) {
  switch (array.type) {
    case StoredType::u8:
      return widen_integers<uint8_t>(array.bytes);
    case StoredType::u16:
      return widen_integers<uint16_t>(array.bytes);
    case StoredType::u32:
      return widen_integers<uint32_t>(array.bytes);
    case StoredType::i32:
      return widen_integers<int32_t>(array.bytes);
    case StoredType::i64:
      return widen_integers<int64_t>(array.bytes);
    case StoredType::f32:
    case StoredType::f64:
      break;
  }
  throw_file_error(path, "holds ", name_of(array.type), ", expected integers");
}

}  // namespace halftone
