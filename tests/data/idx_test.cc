#include "data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <numeric>

#include "data/files.h"
#include "data/gzip.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;

std::string as_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// A gzip member of `content`.
std::string gzipped(const std::string& content) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(content.size() + 1000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  z.avail_in = uInt(content.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

ByteArray some_images(int64_t count) {
  ByteArray images{{count, 4, 3}, std::vector<uint8_t>(size_t(count) * 12)};
  std::iota(images.bytes.begin(), images.bytes.end(), uint8_t{1});
  return images;
}

std::string refusal(const TempFolder& folder, const std::string& content, int rank = 3) {
  const auto path = folder.write("train-images-idx3-ubyte", content);
  return message_of<FileError>([&] { read_idx(path, rank); });
}

TEST(Idx, ReadsWhatWasWritten) {
  const TempFolder folder;
  const ByteArray images = some_images(5);
  const auto path = folder.write("a", as_text(format_idx(images)));
  EXPECT_EQ(read_idx(path, 3).dims, images.dims);
  EXPECT_EQ(read_idx(path, 3).bytes, images.bytes);
}

TEST(Idx, TruncatedEmptyAndTooLongFilesAreRefused) {
  const TempFolder folder;
  const std::string whole = as_text(format_idx(some_images(5)));
  expect_holds(refusal(folder, ""), "train-images-idx3-ubyte", "is empty");
  expect_holds(refusal(folder, whole.substr(0, 3)), "too short");
  expect_holds(refusal(folder, whole.substr(0, 10)), "truncated: 10 bytes", "header alone has 16");
  expect_holds(
      refusal(folder, whole.substr(0, 40)), "truncated", "[5, 4, 3]", "60 bytes, and 24 follow");
  expect_holds(refusal(folder, whole + "x"), "too long", "60 bytes, and 61 follow");
  const std::string huge = whole.substr(0, 4) + std::string(12, '\xff');
  expect_holds(refusal(folder, huge), "[4294967295, 4294967295, 4294967295]", "and 0 follow");
  expect_holds(
      message_of<FileError>([&] { read_idx(folder / "none", 3); }), "none", "No such file");
}

TEST(Idx, WrongByteOrderIsNamed) {
  const TempFolder folder;
  std::string swapped = as_text(format_idx(some_images(1)));
  std::swap(swapped[0], swapped[3]);
  std::swap(swapped[1], swapped[2]);
  expect_holds(refusal(folder, swapped), "0x03080000", "bytes swapped", "big-endian");
}

TEST(Idx, TruncatedAndDamagedGzipIsRefused) {
  const TempFolder folder;
  const std::string whole = gzipped(as_text(format_idx(some_images(50))));
  for (const size_t size : {size_t{2}, size_t{9}, size_t{30}, whole.size() - 9, whole.size() - 1}) {
    expect_holds(refusal(folder, whole.substr(0, size)), "truncated", "no end");
  }
  expect_holds(refusal(folder, whole + "rest"), "4 bytes that are not gzip follow");
  std::string flipped = whole;
  flipped[whole.size() - 6] ^= 1;  // in the CRC
  expect_holds(refusal(folder, flipped), "damaged");
}

TEST(Gzip, SeveralMembersAreOneContent) {
  const std::string two = gzipped("half") + gzipped(std::string(100000, 't'));
  const std::vector<uint8_t> bytes(two.begin(), two.end());
  EXPECT_EQ(as_text(gunzip(bytes, "two.gz")), "half" + std::string(100000, 't'));
}

TEST(Cases, FC90_GzipIsRecognisedByContentWhateverTheName) {
  const TempFolder folder;
  const ByteArray images = some_images(5);
  const std::string raw = as_text(format_idx(images));
  const auto gzip_named_raw = folder.write("train-images-idx3-ubyte", gzipped(raw));
  const auto raw_named_gzip = folder.write("t10k-images-idx3-ubyte.gz", raw);
  EXPECT_EQ(read_idx(gzip_named_raw, 3).bytes, images.bytes);
  EXPECT_EQ(read_idx(raw_named_gzip, 3).bytes, images.bytes);
  EXPECT_EQ(refusal(folder, "PK\3\4 zip").find("529205256"), std::string::npos);
  expect_holds(refusal(folder, "PK\3\4 zip"), "magic number", "expected 2051 (0x00000803)");
}

TEST(Cases, FC93_BothSpellingsAreFound) {
  const TempFolder folder;
  EXPECT_FALSE(find_idx(folder.path(), "train-images", 3).has_value());
  for (const char* name : {"train-images-idx3-ubyte",
                           "train-images-idx3-ubyte.gz",
                           "train-images.idx3-ubyte",
                           "train-images.idx3-ubyte.gz"}) {
    const auto path = folder.write(name, "x");
    EXPECT_EQ(find_idx(folder.path(), "train-images", 3), path);
    std::filesystem::remove(path);
  }
}

TEST(Cases, FC93_WrongTypeAndRankAreNamed) {
  const TempFolder folder;
  const std::string magic0c02("\0\0\x0c\x02 and more", 13);
  expect_holds(
      refusal(folder, magic0c02, 1), "0x0C (i32) of 2 dimensions", "expected 0x08 (u8) of 1");
  const std::string unknown("\0\0\x07\x01 and more", 13);
  expect_holds(refusal(folder, unknown, 1), "0x07 (unknown)");
}

TEST(Idx, ReadsTheRealMnistWhereItIsGiven) {
  const char* data = std::getenv("HALFTONE_DATA");
  const auto path = data == nullptr
                        ? std::nullopt
                        : find_idx(std::filesystem::path(data) / "mnist", "t10k-images", 3);
  if (!path.has_value()) {
    GTEST_SKIP() << "HALFTONE_DATA names no folder with mnist/";
  }
  EXPECT_EQ(read_idx(*path, 3).dims, (Dims{10000, 28, 28}));
}

}  // namespace
}  // namespace halftone
