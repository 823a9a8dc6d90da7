#include "data/files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "data/run_lock.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;

std::vector<uint8_t> filled(size_t size, int value) {
  return std::vector<uint8_t>(size, uint8_t(value));
}

TEST(Files, ReplaceThenReadGivesTheBytes) {
  const TempFolder folder;
  replace_file(folder / "a", filled(5, 1));
  replace_file(folder / "a", filled(100000, 2));
  EXPECT_EQ(read_file(folder / "a"), filled(100000, 2));
  replace_file(folder / "a", {});
  EXPECT_TRUE(read_file(folder / "a").empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "a.tmp"));
}

TEST(Files, ExcerptsFitIntoALine) {
  EXPECT_EQ(excerpt("1.5"), "1.5");
  EXPECT_EQ(excerpt(std::string("a\n\t\0\x7f\xff z", 8)), "a????? z");
  EXPECT_EQ(excerpt(std::string(61, 'x')), std::string(60, 'x') + "...");
  EXPECT_EQ(excerpt(std::string(60, 'x')), std::string(60, 'x'));
}

TEST(Files, MessagesCarryThePathAndTheReason) {
  const TempFolder folder;
  expect_holds(message_of<FileError>([&] { read_file(folder / "none"); }),
               (folder / "none").string(),
               "No such file");
  expect_holds(message_of<FileError>([&] { read_file(folder.path()); }), "is a folder");
  expect_holds(message_of<FileError>([&] { replace_file(folder / "no/such", filled(1, 0)); }),
               "No such file");
  expect_holds(message_of<FileError>([&] { replace_file(folder.path(), filled(1, 0)); }),
               "not a regular file");
  expect_holds(message_of<FileError>([&] { replace_file("/dev/null", filled(1, 0)); }),
               "not a regular file");
}

TEST(Files, ReplaceFollowsASymbolicLink) {
  const TempFolder folder;
  replace_file(folder / "target", filled(1, 1));
  std::filesystem::create_symlink(folder / "target", folder / "link");
  replace_file(folder / "link", filled(2, 2));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), filled(2, 2));
}

TEST(Cases, FC85_FullDiskLeavesTheOldFileAndNamesTheReason) {
  const TempFolder folder;
  if (::geteuid() != 0 || ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounting a 64 KiB tmpfs takes root";
  }
  const auto old_bytes = filled(20000, 7);
  replace_file(folder / "RUN.h5", old_bytes);
  const std::string message =
      message_of<FileError>([&] { replace_file(folder / "RUN.h5", filled(100000, 8)); });
  const bool temporary_left = std::filesystem::exists(folder / "RUN.h5.tmp");
  const auto found = read_file(folder / "RUN.h5");
  ::umount(folder.path().c_str());
  expect_holds(message, "RUN.h5", "No space left on device", "untouched");
  EXPECT_FALSE(temporary_left);
  EXPECT_EQ(found, old_bytes);
}

TEST(Cases, FC85_KilledWhileSavingLeavesAWholeFile) {
  const TempFolder folder;
  constexpr size_t kSize = 4 << 20;
  replace_file(folder / "RUN.h5", filled(kSize, 0));
  bool is_replaced = false;
  // On a busy machine a child may not write at all before it is killed: then it is given longer.
  for (int round = 0; round < 20 || (!is_replaced && round < 200); ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int value = 1;; ++value) {
        replace_file(folder / "RUN.h5", filled(kSize, value));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 1731 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto found = read_file(folder / "RUN.h5");
    ASSERT_EQ(found.size(), kSize);
    ASSERT_EQ(found, filled(kSize, found[0])) << "a mixture of two versions in round " << round;
    is_replaced = is_replaced || found[0] != 0;
  }
  EXPECT_TRUE(is_replaced);
}

TEST(Cases, FC103_SecondRunIsRefusedWhileTheFirstHoldsTheLock) {
  const TempFolder folder;
  replace_file(folder / "RUN.h5", filled(10, 3));
  {
    const RunLock first(folder / "RUN.h5");
    expect_holds(message_of<FileError>([&] { RunLock second(folder / "RUN.h5"); }),
                 (folder / "RUN.h5").string(),
                 "another run (process " + std::to_string(::getpid()) + ")",
                 "RUN.h5.lock");
    EXPECT_EQ(read_file(folder / "RUN.h5"), filled(10, 3));  // can be read meanwhile
  }
  EXPECT_NO_THROW(RunLock again(folder / "RUN.h5"));
  std::filesystem::create_symlink("RUN.h5", folder / "link.h5");  // another name of that file
  const RunLock through_link(folder / "link.h5");
  EXPECT_THROW(RunLock direct(folder / "RUN.h5"), FileError);
  expect_holds(message_of<FileError>([&] { RunLock lock(folder / "none/RUN.h5"); }),
               "No such file");
}

TEST(Cases, FC103_LockDiesWithItsProcess) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder / "RUN.h5");
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THROW(RunLock second(folder / "RUN.h5"), FileError);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(RunLock third(folder / "RUN.h5"));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace halftone
