#include "data/idx.h"

#include <bit>
#include <iomanip>
#include <sstream>

#include "core/check.h"
#include "data/files.h"
#include "data/gzip.h"

namespace halftone {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

std::string hex(uint32_t value, int digits) {
  std::ostringstream out;
  out << "0x" << std::hex << std::uppercase << std::setfill('0') << std::setw(digits) << value;
  return out.str();
}

std::string describe_type(uint8_t code) {
  const char* name = "unknown";
  switch (code) {
    case 0x08:
      name = "u8";
      break;
    case 0x09:
      name = "i8";
      break;
    case 0x0B:
      name = "i16";
      break;
    case 0x0C:
      name = "i32";
      break;
    case 0x0D:
      name = "f32";
      break;
    case 0x0E:
      name = "f64";
      break;
  }
  return hex(code, 2) + " (" + name + ")";
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void check_magic(std::span<const uint8_t> content, int rank, const std::filesystem::path& path) {
  const uint32_t expected = uint32_t{kUnsignedByte} << 8 | uint32_t(rank);
  if (content.size() < 4) {
    throw_file_error(path,
                     content.empty() ? "is empty" : "is too short for a magic number",
                     ", expected an IDX file (",
                     hex(expected, 8),
                     ", u8 of ",
                     rank,
                     " dimensions)");
  }
  const uint32_t magic = big_endian(content.data());
  if (magic == expected) {
    return;
  }
  if (magic == __builtin_bswap32(expected)) {
    throw_file_error(path,
                     "magic number ",
                     hex(magic, 8),
                     " is that of an IDX file with its bytes swapped; "
                     "IDX is big-endian: write the file again");
  }
  if (magic >> 16 != 0) {
    throw_file_error(path,
                     "magic number ",
                     magic,
                     " (",
                     hex(magic, 8),
                     "), expected ",
                     expected,
                     " (",
                     hex(expected, 8),
                     "): this is no IDX file");
  }
  throw_file_error(path,
                   "magic number ",
                   hex(magic, 8),
                   ": element type ",
                   describe_type(uint8_t(magic >> 8)),
                   " of ",
                   magic & 0xff,
                   " dimensions, expected ",
                   describe_type(kUnsignedByte),
                   " of ",
                   rank);
}

}  // namespace

ByteArray parse_idx(std::span<const uint8_t> content, int rank, const std::filesystem::path& path) {
  check_magic(content, rank, path);
  const size_t header = 4 + 4 * size_t(rank);
  if (content.size() < header) {
    throw_file_error(
        path, "is truncated: ", content.size(), " bytes, the header alone has ", header);
  }
  ByteArray out;
  double expected = 1;  // a double cannot wrap around, whatever the header claims
  for (int i = 0; i < rank; ++i) {
    out.dims.push_back(big_endian(content.data() + 4 + 4 * i));
    expected *= double(out.dims.back());
  }
  const std::span<const uint8_t> elements = content.subspan(header);
  if (double(elements.size()) != expected) {
    throw_file_error(path,
                     double(elements.size()) < expected ? "is truncated" : "is too long",
                     ": its header says ",
                     to_string(out.dims),
                     ", that is ",
                     std::fixed,
                     std::setprecision(0),
                     expected,
                     " bytes, and ",
                     elements.size(),
                     " follow");
  }
  out.bytes.assign(elements.begin(), elements.end());
  return out;
}

ByteArray read_idx(const std::filesystem::path& path, int rank) {
  return parse_idx(read_maybe_gzip(path), rank, path);
}

std::optional<std::filesystem::path> find_idx(const std::filesystem::path& folder,
                                              const std::string& stem,
                                              int rank) {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      const std::filesystem::path candidate =
          folder / concat(stem, separator, "idx", rank, "-ubyte", suffix);
      std::error_code ignored;
      if (std::filesystem::exists(candidate, ignored)) {
        return candidate;
      }
    }
  }
  return std::nullopt;
}

std::vector<uint8_t> format_idx(const ByteArray& array) {
  HALFTONE_CHECK(num_elements(array.dims) == int64_t(array.bytes.size()),
                 "format_idx: ",
                 array.bytes.size(),
                 " bytes for ",
                 to_string(array.dims));
  std::vector<uint8_t> out = {0, 0, kUnsignedByte, uint8_t(array.dims.size())};
  for (const int64_t dim : array.dims) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.push_back(uint8_t(dim >> shift));
    }
  }
  out.insert(out.end(), array.bytes.begin(), array.bytes.end());
  return out;
}

}  // namespace halftone
