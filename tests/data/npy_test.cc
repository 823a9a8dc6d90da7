#include "data/npy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "data/files.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;

std::string npy(int version, const std::string& dictionary, const std::string& elements) {
  std::string out = "\x93NUMPY";
  out += char(version);
  out += '\0';
  const std::string header = dictionary + "\n";
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    out += char(header.size() >> (8 * i));
  }
  return out + header + elements;
}

std::string dictionary(const std::string& descr,
                       const std::string& shape,
                       const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

NpyArray read(const TempFolder& folder, const std::string& content) {
  return read_npy(folder.write("a.npy", content));
}

std::string refusal(const TempFolder& folder, const std::string& content) {
  return message_of<FileError>([&] { read(folder, content); });
}

TEST(Npy, ReadsEveryTypeInEitherByteOrder) {
  const TempFolder folder;
  const std::string one_two("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16);
  for (const char* type : {"u1", "u2", "u4", "i4", "i8"}) {
    const size_t size = size_t(type[1] - '0');
    const std::string little = one_two.substr(0, size) + one_two.substr(8, size);
    std::string big = little;
    std::reverse(big.begin(), big.begin() + ptrdiff_t(size));
    std::reverse(big.begin() + ptrdiff_t(size), big.end());
    for (const char* order : {"<", ">"}) {
      const NpyArray array =
          read(folder,
               npy(1, dictionary(order + std::string(type), "(2,)"), *order == '<' ? little : big));
      EXPECT_EQ(to_integers(array, "a.npy"), (std::vector<int64_t>{1, 2})) << order << type;
    }
  }
  const NpyArray bytes = read(folder, npy(2, dictionary("|u1", "(2, 3)"), "abcdef"));
  EXPECT_EQ(bytes.dims, (Dims{2, 3}));
  const NpyArray reals =
      read(folder, npy(3, dictionary(">f4", "()"), std::string("\x3f\x80\0\0", 4)));
  EXPECT_EQ(reals.dims, Dims{});
  EXPECT_EQ(reals.bytes, (std::vector<uint8_t>{0, 0, 0x80, 0x3f}));
  EXPECT_THROW(to_integers(reals, "a.npy"), FileError);
  EXPECT_EQ(read(folder, npy(1, dictionary("<f8", "(0, 5)"), "")).dims, (Dims{0, 5}));
}

TEST(Npy, BadFilesAreRefusedWithTheReason) {
  const TempFolder folder;
  const std::string good = npy(1, dictionary("<u2", "(3,)"), "aabbcc");
  EXPECT_NO_THROW(read(folder, good));
  expect_holds(refusal(folder, ""), "a.npy", "is empty");
  expect_holds(refusal(folder, "hello world"), "does not start with");
  expect_holds(refusal(folder, good.substr(0, 8)), "version");
  expect_holds(refusal(folder, good.substr(0, 30)), "truncated", "header alone");
  expect_holds(refusal(folder, good.substr(0, good.size() - 1)), "truncated", "u16 [3]", "5 bytes");
  expect_holds(refusal(folder, good + "x"), "too long", "7 bytes");
  expect_holds(refusal(folder, npy(1, dictionary("<u2", "(3,)", "True"), "aabbcc")),
               "Fortran order",
               "ascontiguousarray");
  for (const char* type : {"<f2", "|O", "<U4", "|b1", "<c8"}) {
    expect_holds(
        refusal(folder, npy(1, dictionary(type, "(3,)"), "aabbcc")), type, "u1 u2 u4 i4 i8 f4 f8");
  }
  expect_holds(refusal(folder, npy(1, dictionary("<u2", "(-3,)"), "aabbcc")), "shape");
  expect_holds(
      refusal(folder, npy(1, dictionary("<u2", "(9223372036854775807, 9223372036854775807)"), "")),
      "truncated");
  expect_holds(refusal(folder, npy(1, "{'descr': '<u2'}", "")), "fortran_order");
  expect_holds(refusal(folder, npy(4, dictionary("<u2", "(3,)"), "aabbcc")), "version 4");
}

}  // namespace
}  // namespace halftone
