#include "data/hdf5_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "core/formats.h"
#include "data/files.h"
#include "data/hdf5_checksum.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

// The library itself loses memory when it gives up on damaged metadata, which the flipped bytes
// below make it do; leaks of ours are still reported. Read by LeakSanitizer alone.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libhdf5";
}

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;

template <class T>
void round_trip(const std::filesystem::path& path, const Dims& dims, const Dims& chunk) {
  std::vector<T> values(size_t(DatasetInfo{kStoredTypeOf<T>, dims, ""}.num_elements()));
  std::iota(values.begin(), values.end(), T(3));
  Hdf5File file = Hdf5File::create();
  file.write<T>("/deep/in/groups", dims, values, chunk);
  file.save(path);
  const Hdf5File opened = Hdf5File::open(path);
  EXPECT_EQ(opened.info("/deep/in/groups").dims, dims);
  EXPECT_EQ(opened.info("/deep/in/groups").type, kStoredTypeOf<T>);
  EXPECT_EQ(opened.read<T>("/deep/in/groups"), values);
}

template <class T>
void round_trips(const std::filesystem::path& path) {
  round_trip<T>(path, {}, {});
  round_trip<T>(path, {0, 5}, {});
  round_trip<T>(path, {7}, {});
  round_trip<T>(path, {2, 3, 4, 5}, {1, 3, 2, 9});
}

// Groups would note when they were made, in whole seconds.
TEST(Hdf5File, SameContentGivesTheSameBytes) {
  const TempFolder folder;
  round_trip<float>(folder / "now.h5", {7}, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  round_trip<float>(folder / "later.h5", {7}, {});
  EXPECT_EQ(read_file(folder / "later.h5"), read_file(folder / "now.h5"));
}

TEST(Hdf5File, EveryTypeAndRankReadsBack) {
  const TempFolder folder;
  round_trips<uint8_t>(folder / "a.h5");
  round_trips<uint16_t>(folder / "a.h5");
  round_trips<uint32_t>(folder / "a.h5");
  round_trips<int32_t>(folder / "a.h5");
  round_trips<int64_t>(folder / "a.h5");
  round_trips<float>(folder / "a.h5");
  round_trips<double>(folder / "a.h5");
}

TEST(Hdf5File, FloatBitsAreKept) {
  const TempFolder folder;
  const std::vector<uint32_t> bits = {0x7fc12345, 0xff812345, 0x00000001, 0x80000000, 0x7f800000};
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * 4);
  Hdf5File file = Hdf5File::create();
  file.write<float>("/x", {5}, values);
  file.set_real("/", "nan", std::bit_cast<double>(uint64_t{0x7ff8000000001234}));
  file.save(folder / "a.h5");
  const Hdf5File opened = Hdf5File::open(folder / "a.h5");
  const std::vector<float> found = opened.read<float>("/x");
  EXPECT_EQ(std::memcmp(found.data(), bits.data(), bits.size() * 4), 0);
  EXPECT_EQ(std::bit_cast<uint64_t>(opened.real("/", "nan")), 0x7ff8000000001234);
}

TEST(Hdf5File, AttributesAndListingInNameOrder) {
  const TempFolder folder;
  Hdf5File file = Hdf5File::create();
  file.create_group("/empty");
  for (const char* name : {"/b", "/a/z", "/a", "/a/c"}) {
    if (!file.has(name)) {
      file.write<uint8_t>(name, {1}, std::vector<uint8_t>{1});
    }
  }
  file.set_text("/", "recipe", "fp8-block,grad=e5m2");
  file.set_text("/", "recipe", "bf16 \u00e9");  // replaces
  file.set_text("/", "empty", "");
  file.set_text("/", "long", std::string(200000, 'x'));
  file.set_integer("/a", "n", std::numeric_limits<int64_t>::min());
  file.set_real("/b", "scale", 65536.5);
  file.save(folder / "a.h5");
  const Hdf5File opened = Hdf5File::open(folder / "a.h5");
  EXPECT_EQ(opened.datasets(), (std::vector<std::string>{"/a/c", "/a/z", "/b"}));
  EXPECT_EQ(opened.objects(),
            (std::vector<std::string>{"/", "/a", "/a/c", "/a/z", "/b", "/empty"}));
  EXPECT_EQ(opened.attributes("/"), (std::vector<std::string>{"empty", "long", "recipe"}));
  EXPECT_EQ(opened.text("/", "recipe"), "bf16 \u00e9");
  EXPECT_EQ(opened.text("/", "empty"), "");
  EXPECT_EQ(opened.text("/", "long").size(), 200000u);
  EXPECT_EQ(opened.integer("/a", "n"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(opened.real("/b", "scale"), 65536.5);
  EXPECT_FALSE(opened.has_attribute("/", "none"));
  EXPECT_FALSE(opened.has("/none/deeper"));
  expect_holds(message_of<FileError>([&] { opened.text("/", "none"); }), "a.h5", "none");
  expect_holds(
      message_of<FileError>([&] { opened.integer("/", "recipe"); }), "/@recipe", "integer");
}

TEST(Hdf5File, WrongUseAndWrongTypesAreNamed) {
  const TempFolder folder;
  Hdf5File file = Hdf5File::create();
  file.write<float>("/x", {2}, std::vector<float>{1, 2});
  expect_holds(message_of<FileError>([&] { file.read<double>("/x"); }), "/x", "f32 [2]", "f64");
  expect_holds(message_of<FileError>([&] { file.read<float>("/y"); }), "no dataset /y");
  expect_holds(message_of<FileError>([&] { file.write<float>("/x", {0}, {}); }), "/x", "create");
  EXPECT_THROW(file.write<float>("/z", {3}, std::vector<float>{1, 2}), std::invalid_argument);
}

TEST(Hdf5File, ForeignFilesAreRefusedWithTheReason) {
  const TempFolder folder;
  expect_holds(message_of<FileError>([&] { Hdf5File::open(folder / "none.h5"); }),
               "none.h5",
               "No such file");
  expect_holds(message_of<FileError>([&] { Hdf5File::open(folder.path()); }), "not a regular file");
  expect_holds(message_of<FileError>([&] { Hdf5File::open(folder.write("empty.h5", "")); }),
               "is empty");
  expect_holds(
      message_of<FileError>([&] { Hdf5File::open(folder.write("text.h5", "hello, world")); }),
      "not a whole HDF5 file (12 bytes)",
      "signature");
  Hdf5File file = Hdf5File::create();
  file.write<uint8_t>("/x", {100000}, std::vector<uint8_t>(100000, 1));
  file.save(folder / "whole.h5");
  std::filesystem::resize_file(folder / "whole.h5", 50000);
  expect_holds(message_of<FileError>([&] { Hdf5File::open(folder / "whole.h5"); }), "truncated");
}

TEST(Cases, FC10_SixteenBitValuesAreRawBitsThatHdf5NeverConverts) {
  const TempFolder folder;
  // Our own conversion of 0x3F808000 to BF16 and of 65520, 2^-25, 1 + 2^-11 to FP16, and NaNs with
  // payloads.
  const auto code = [](const Format& f, float x) { return static_cast<uint16_t>(encode(f, x)); };
  const std::vector<uint16_t> bits = {code(kBf16, std::bit_cast<float>(0x3f808000u)),
                                      code(kFp16, 65520.0f),
                                      code(kFp16, 0x1p-25f),
                                      code(kFp16, 1.0f + 0x1p-11f),
                                      0x7e01,
                                      0xfdab,
                                      0x7fc1};
  EXPECT_EQ(bits, (std::vector<uint16_t>{0x3f80, 0x7c00, 0x0000, 0x3c00, 0x7e01, 0xfdab, 0x7fc1}));
  Hdf5File file = Hdf5File::create();
  file.write<uint16_t>("/param/w", {7}, bits);
  file.set_text("/param/w", "dtype", "bf16");
  file.save(folder / "a.h5");
  const Hdf5File opened = Hdf5File::open(folder / "a.h5");
  EXPECT_EQ(opened.read<uint16_t>("/param/w"), bits);
  EXPECT_THROW(opened.read<float>("/param/w"), FileError);
}

TEST(Cases, FC89_SixteenBitTensorsCarryTheirDtype) {
  Hdf5File file = Hdf5File::create();
  file.write<uint16_t>("/w", {2, 1}, std::vector<uint16_t>{0x3f80, 0xc000});
  EXPECT_EQ(file.info("/w").dtype, "u16");
  file.set_text("/w", "dtype", "bf16");
  EXPECT_EQ(file.info("/w").dtype, "bf16");
  EXPECT_EQ(file.info("/w").type, StoredType::u16);
}

TEST(Cases, FC100_ReaderIsToldAboutTheLockOfAnotherWriter) {
  const TempFolder folder;
  Hdf5File file = Hdf5File::create();
  file.write<uint8_t>("/x", {1}, std::vector<uint8_t>{1});
  file.save(folder / "a.h5");
  ASSERT_EQ(::chmod((folder / "a.h5").c_str(), 0444), 0);
  {
    const Hdf5File first = Hdf5File::open(folder / "a.h5");
    EXPECT_NO_THROW(Hdf5File::open(folder / "a.h5"));  // two readers
  }
  const int fd = ::open((folder / "a.h5").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);  // as an HDF5 writer does
  expect_holds(message_of<FileError>([&] { Hdf5File::open(folder / "a.h5"); }),
               "a.h5",
               "open for writing",
               "HDF5_USE_FILE_LOCKING=FALSE");
  ::close(fd);
}

TEST(Cases, FC100_ReadingGoesOnWhileAWriterReplacesTheFile) {
  const TempFolder folder;
  Hdf5File file = Hdf5File::create();
  file.write<uint8_t>("/x", {3}, std::vector<uint8_t>{1, 2, 3});
  file.save(folder / "a.h5");
  const Hdf5File reader = Hdf5File::open(folder / "a.h5");
  file.write<uint8_t>("/y", {1}, std::vector<uint8_t>{9});
  file.save(folder / "a.h5");
  EXPECT_EQ(reader.read<uint8_t>("/x"), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_FALSE(reader.has("/y"));
  EXPECT_TRUE(Hdf5File::open(folder / "a.h5").has("/y"));
}

TEST(Cases, FC101_ChunksAreClampedAndZeroSizesStored) {
  EXPECT_EQ(clamp_chunk({0, 5}, {128, 128}, StoredType::f32), Dims{});
  EXPECT_EQ(clamp_chunk({3, 5}, {128, 128}, StoredType::f32), (Dims{3, 5}));
  EXPECT_EQ(clamp_chunk({int64_t{1} << 30}, {int64_t{1} << 30}, StoredType::f32),
            Dims{int64_t{1} << 29});
  EXPECT_EQ(clamp_chunk({1 << 30}, {(1 << 30) - 1}, StoredType::f32), Dims{(1 << 30) - 1});
  EXPECT_EQ(clamp_chunk({4, int64_t{1} << 33}, {4, int64_t{1} << 33}, StoredType::u8),
            (Dims{1, int64_t{1} << 31}));
  const TempFolder folder;
  round_trip<float>(folder / "a.h5", {0, 5}, {128, 128});
  round_trip<float>(folder / "a.h5", {3, 5}, {128, 128});
}

// A small checkpoint with groups, 16-bit weights and attributes.
std::filesystem::path write_checked_file(const TempFolder& folder) {
  Hdf5File file = Hdf5File::create();
  std::vector<float> weights(1000);
  std::iota(weights.begin(), weights.end(), 0.5f);
  file.write<float>("/param/fc1.weight", {10, 100}, weights);
  file.write<uint16_t>("/param/fc2.weight", {4}, std::vector<uint16_t>{1, 2, 3, 4});
  file.set_text("/param/fc2.weight", "dtype", "bf16");
  file.set_text("/", "config", R"({"hidden":"10"})");
  file.set_integer("/", "iteration", 20);
  write_checksum(file);
  file.save(folder / "RUN.h5");
  return folder / "RUN.h5";
}

void verify(const std::filesystem::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  verify_checksum(file);
}

TEST(Cases, FC87_AFlippedByteInAWeightIsRefused) {
  const TempFolder folder;
  const auto path = write_checked_file(folder);
  EXPECT_NO_THROW(verify(path));
  std::vector<uint8_t> bytes = read_file(path);
  const float probe = 500.5f;
  const auto* needle = reinterpret_cast<const uint8_t*>(&probe);
  const auto at = std::search(bytes.begin(), bytes.end(), needle, needle + 4);
  ASSERT_NE(at, bytes.end());
  *at ^= 1;
  replace_file(path, bytes);
  EXPECT_EQ(Hdf5File::open(path).read<float>("/param/fc1.weight").size(),
            1000u);  // plain HDF5 reads it
  expect_holds(message_of<FileError>([&] { verify(path); }), "RUN.h5", "is damaged", "older copy");
}

// Any flipped byte is refused, or lies in bytes that hold nothing: then all content reads back as
// it was.
TEST(Cases, FC87_EveryFlippedByteIsRefusedOrHarmless) {
  const TempFolder folder;
  const auto path = write_checked_file(folder);
  const std::string before = compute_checksum(Hdf5File::open(path));
  const std::vector<uint8_t> whole = read_file(path);
  size_t harmless = 0;
  for (size_t i = 0; i < whole.size(); i += 17) {
    std::vector<uint8_t> bytes = whole;
    bytes[i] ^= 0x10;
    folder.write("flipped.h5", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    try {
      verify(folder / "flipped.h5");
    } catch (const FileError&) {
      continue;
    }
    ++harmless;
    EXPECT_EQ(compute_checksum(Hdf5File::open(folder / "flipped.h5")), before);
  }
  EXPECT_LT(harmless, whole.size() / 17 / 20) << "unused bytes should be few";
}

TEST(Hdf5Checksum, CoversNamesShapesAndAttributes) {
  const auto checksum_of = [](const char* name, const Dims& dims, int64_t attribute) {
    Hdf5File file = Hdf5File::create();
    file.write<uint8_t>(name, dims, std::vector<uint8_t>{1, 2, 3, 4});
    file.set_integer("/", "n", attribute);
    return compute_checksum(file);
  };
  const std::string base = checksum_of("/a", {2, 2}, 1);
  EXPECT_EQ(base, checksum_of("/a", {2, 2}, 1));
  EXPECT_NE(base, checksum_of("/b", {2, 2}, 1));
  EXPECT_NE(base, checksum_of("/a", {4, 1}, 1));
  EXPECT_NE(base, checksum_of("/a", {2, 2}, 2));
  expect_holds(message_of<FileError>([] { verify_checksum(Hdf5File::create()); }),
               "has no /checksum");
}

}  // namespace
}  // namespace halftone
