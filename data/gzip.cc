#include "data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <stdexcept>

#include "data/files.h"

namespace halftone {
namespace {

struct Inflater {
  z_stream stream{};
  Inflater() {
    constexpr int kGzipOnly = 15 + 16;  // a 32 KiB window, and a gzip header is required
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
      throw std::runtime_error("gunzip: zlib cannot be initialised");
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

}  // namespace

bool is_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

std::vector<uint8_t> gunzip(std::span<const uint8_t> bytes, const std::filesystem::path& path) {
  constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits
  std::vector<uint8_t> out(std::max<size_t>(4096, 4 * bytes.size()));
  size_t num_out = 0;
  size_t num_in = 0;
  while (num_in < bytes.size()) {  // one gzip member a turn
    if (!is_gzip(bytes.subspan(num_in))) {
      throw_file_error(
          path, bytes.size() - num_in, " bytes that are not gzip follow the gzip stream");
    }
    Inflater inflater;
    z_stream& z = inflater.stream;
    for (int status = Z_OK; status != Z_STREAM_END;) {
      if (num_out == out.size()) {
        out.resize(2 * out.size());
      }
      const size_t offered = std::min(kPiece, bytes.size() - num_in);
      const size_t room = std::min(kPiece, out.size() - num_out);
      z.next_in = const_cast<Bytef*>(bytes.data() + num_in);  // zlib's interface; it only reads
      z.avail_in = uInt(offered);
      z.next_out = out.data() + num_out;
      z.avail_out = uInt(room);
      status = inflate(&z, Z_NO_FLUSH);
      num_in += offered - z.avail_in;
      num_out += room - z.avail_out;
      if (status == Z_BUF_ERROR || (status == Z_OK && num_in == bytes.size() && z.avail_out > 0)) {
        throw_file_error(path,
                         "the gzip stream is truncated: ",
                         bytes.size(),
                         " bytes hold ",
                         num_out,
                         " uncompressed ones and no end; fetch the file again");
      }
      if (status != Z_OK && status != Z_STREAM_END) {
        throw_file_error(path,
                         "the gzip stream is damaged after ",
                         num_in,
                         " bytes: ",
                         z.msg != nullptr ? z.msg : "no reason given");
      }
    }
  }
  out.resize(num_out);
  return out;
}

std::vector<uint8_t> read_maybe_gzip(const std::filesystem::path& path) {
  std::vector<uint8_t> bytes = read_file(path);
  return is_gzip(bytes) ? gunzip(bytes, path) : bytes;
}

}  // namespace halftone
