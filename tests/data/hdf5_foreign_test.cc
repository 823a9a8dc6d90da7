// Files that other programs wrote, made here with the C API itself: what Hdf5File reads of them,
// and what it refuses.
#include <gtest/gtest.h>
#include <hdf5.h>

#include "data/files.h"
#include "data/hdf5_file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;

void put_dataset(hid_t file, const char* name, hid_t stored, hid_t in_memory, const void* data) {
  const hsize_t count = 2;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Dwrite(set, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
  H5Dclose(set);
  H5Sclose(space);
}

void put_attribute(hid_t file, const char* name, hid_t type, const void* data, hsize_t count = 1) {
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Awrite(attribute, type, data), 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

// binary16: the fields are set before the size, since 1.10.8 refuses to shrink below them.
hid_t make_half_type() {
  const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
  EXPECT_GE(H5Tset_fields(half, 15, 10, 5, 0, 10), 0);
  EXPECT_GE(H5Tset_size(half, 2), 0);
  EXPECT_GE(H5Tset_ebias(half, 15), 0);
  return half;
}

class ForeignHdf5 : public ::testing::Test {
 protected:
  void SetUp() override {
    const hid_t file =
        H5Fcreate((folder_ / "a.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const uint16_t words[2] = {1, 0x1234};
    const float reals[2] = {1.5f, -2};
    const signed char bytes[2] = {1, -1};
    put_dataset(file, "big", H5T_STD_U16BE, H5T_NATIVE_UINT16, words);
    put_dataset(file, "big_float", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, reals);
    put_dataset(file, "i8", H5T_STD_I8LE, H5T_NATIVE_SCHAR, bytes);
    const hid_t half = make_half_type();
    put_dataset(file, "half", half, H5T_NATIVE_FLOAT, reals);
    H5Tclose(half);

    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    const char* words_of_any_length = "of any length";
    put_attribute(file, "text", text, &words_of_any_length);
    H5Tclose(text);
    const int narrow[2] = {-7, 8};
    put_attribute(file, "narrow", H5T_NATIVE_INT, narrow);
    put_attribute(file, "pair", H5T_NATIVE_INT, narrow, 2);
    put_attribute(file, "single", H5T_NATIVE_FLOAT, reals);

    const hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", group, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
    H5Fclose(file);
  }

  TempFolder folder_;
};

TEST_F(ForeignHdf5, EitherByteOrderReadsAlike) {
  const Hdf5File file = Hdf5File::open(folder_ / "a.h5");
  EXPECT_EQ(file.read<uint16_t>("/big"), (std::vector<uint16_t>{1, 0x1234}));
  EXPECT_EQ(file.read<float>("/big_float"), (std::vector<float>{1.5f, -2}));
}

TEST_F(ForeignHdf5, SixteenBitFloatsAndOtherTypesAreRefused) {
  const Hdf5File file = Hdf5File::open(folder_ / "a.h5");
  expect_holds(message_of<FileError>([&] { file.info("/half"); }),
               "/half",
               "2 bytes",
               "u16 with a dtype attribute");
  expect_holds(message_of<FileError>([&] { file.info("/i8"); }), "/i8", "1 bytes", "none of u8");
  expect_holds(
      message_of<FileError>([&] { file.info("/group"); }), "/group", "cannot open the dataset");
}

TEST_F(ForeignHdf5, AttributesOfOneValueRead) {
  const Hdf5File file = Hdf5File::open(folder_ / "a.h5");
  EXPECT_EQ(file.text("/", "text"), "of any length");
  EXPECT_EQ(file.integer("/", "narrow"), -7);
  expect_holds(message_of<FileError>([&] { file.integer("/", "pair"); }), "/@pair", "one value");
  expect_holds(message_of<FileError>([&] { file.real("/", "single"); }), "/@single", "f64");
  expect_holds(message_of<FileError>([&] { file.text("/", "narrow"); }), "found a number");
  expect_holds(message_of<FileError>([&] { file.real("/", "text"); }), "real number");
}

TEST_F(ForeignHdf5, LinksThatLeadElsewhereAreNotFollowed) {
  const Hdf5File file = Hdf5File::open(folder_ / "a.h5");
  EXPECT_EQ(file.objects(),
            (std::vector<std::string>{"/", "/big", "/big_float", "/group", "/half", "/i8"}));
}

}  // namespace
}  // namespace halftone
