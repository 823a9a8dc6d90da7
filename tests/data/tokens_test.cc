#include "data/tokens.h"

#include <gtest/gtest.h>

#include <string>

#include "data/files.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;

std::string word(uint32_t value, size_t num_bytes = 4) {
  return std::string(reinterpret_cast<const char*>(&value), num_bytes);
}

std::string with_header(uint32_t magic,
                        uint32_t version,
                        uint32_t count,
                        const std::string& tokens) {
  std::string header = word(magic) + word(version) + word(count);
  header.resize(1024);
  return header + tokens;
}

std::string refusal(const TempFolder& folder,
                    const std::string& name,
                    const std::string& content,
                    int64_t vocabulary = 0) {
  const auto path = folder.write(name, content);
  return message_of<FileError>([&] { read_token_file(path, vocabulary); });
}

TEST(Tokens, ReadsAllThreeKinds) {
  const TempFolder folder;
  const std::string u16 = word(7, 2) + word(50256, 2);
  const std::vector<int32_t> expected = {7, 50256};
  const TokenFile gpt2 =
      read_token_file(folder.write("train.bin", with_header(kTokenFileMagic, 1, 2, u16)));
  EXPECT_EQ(gpt2.tokens, expected);
  EXPECT_EQ(gpt2.vocabulary, kGpt2Vocabulary);
  const TokenFile raw16 = read_token_file(folder.write("a.u16", u16));
  EXPECT_EQ(raw16.tokens, expected);
  EXPECT_EQ(raw16.vocabulary, 50257);
  const TokenFile raw32 = read_token_file(folder.write("a.u32", word(7) + word(50256)), 60000);
  EXPECT_EQ(raw32.tokens, expected);
  EXPECT_EQ(raw32.vocabulary, 60000);
}

TEST(Tokens, HeadersAreCheckedAgainstTheFile) {
  const TempFolder folder;
  expect_holds(refusal(folder, "a.bin", with_header(kTokenFileMagic, 1, 3, "aabb")),
               "truncated",
               "3 tokens",
               "6 bytes, and 4");
  expect_holds(refusal(folder, "a.bin", with_header(kTokenFileMagic, 1, 1, "aabb")),
               "too long",
               "2 bytes, and 4");
  expect_holds(refusal(folder, "a.bin", with_header(kTokenFileMagic, 2, 2, "aabb")), "version 2");
  expect_holds(refusal(folder, "a.bin", with_header(kTokenFileMagic, 1, 0, "")), "no tokens");
  expect_holds(refusal(folder, "a.bin", with_header(20240521, 1, 2, "aabb")),
               "20240521",
               "expected 20240520",
               ".u16");
  expect_holds(
      refusal(folder, "a.bin", with_header(__builtin_bswap32(kTokenFileMagic), 1, 2, "aabb")),
      "bytes swapped");
  expect_holds(refusal(folder, "a.bin", with_header(kTokenFileMagic, 1, 2, "").substr(0, 100)),
               "truncated: 100 bytes");
  expect_holds(refusal(folder, "a.bin", ""), "not a token file");
  expect_holds(refusal(folder, "a.u16", "abc"), "3 bytes", "multiple of 2");
  expect_holds(refusal(folder, "a.u32", "abcdef"), "multiple of 4");
  expect_holds(refusal(folder, "a.u16", ""), "no tokens");
}

TEST(Tokens, RawTokensInTheWrongByteOrderAreRefused) {
  const TempFolder folder;
  const auto swapped = [](uint32_t token) { return word(__builtin_bswap32(token)); };
  expect_holds(refusal(folder, "a.u32", swapped(0) + swapped(5) + swapped(50256)),
               "multiple of 65536",
               "83886080",
               "little-endian");
  expect_holds(refusal(folder, "a.u16", std::string("\0\5\0\x41", 4)), "multiple of 256", "1280");
  EXPECT_EQ(read_token_file(folder.write("b.u16", std::string(4, '\0')), 0).vocabulary, 1);
}

TEST(Tokens, TokensOutsideOfTheVocabularyAreNamed) {
  const TempFolder folder;
  expect_holds(refusal(folder, "a.u16", word(3, 2) + word(10, 2), 10),
               "token 10 at index 1",
               "vocabulary of 10 (0 to 9)");
  expect_holds(refusal(folder, "a.bin", with_header(kTokenFileMagic, 1, 1, word(50257, 2))),
               "token 50257 at index 0");
  expect_holds(refusal(folder, "a.u32", word(0xffffffff)), "token 4294967295");
}

}  // namespace
}  // namespace halftone
