#include "data/text.h"

#include <gtest/gtest.h>

#include "data/files.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;

TEST(Text, EveryCodePointSurvivesUtf8) {
  std::string text;
  std::vector<uint32_t> all;
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 61) {
    if (c < 0xD800 || c > 0xDFFF) {
      all.push_back(c);
      append_utf8(c, text);
    }
  }
  EXPECT_EQ(decode_utf8(text, "a.txt"), all);
}

TEST(Text, InvalidUtf8IsRefusedWithItsOffset) {
  struct Bad {
    std::string bytes;
    const char* found;
  };
  const Bad cases[] = {{"ab\xff", "0xFF at offset 2"},
                       {"\x80", "0x80 at offset 0"},               // a tail byte alone
                       {"a\xc3", "0xC3 at offset 1"},              // cut off
                       {"a\xc3z", "0xC3 at offset 1"},             // no tail byte
                       {"\xc0\xaf", "0xC0 at offset 0"},           // overlong
                       {"\xe0\x80\xaf", "0xE0 at offset 0"},       // overlong
                       {"\xed\xa0\x80", "0xED at offset 0"},       // surrogate
                       {"\xf4\x90\x80\x80", "0xF4 at offset 0"}};  // above U+10FFFF
  for (const Bad& bad : cases) {
    expect_holds(message_of<FileError>([&] { decode_utf8(bad.bytes, "a.txt"); }),
                 "a.txt",
                 "not UTF-8",
                 bad.found);
  }
}

TEST(Text, CharactersAreSortedCodePoints) {
  const TokenizedText text = tokenize("b\u00e9a\nb", {}, "a.txt");
  EXPECT_EQ(text.vocabulary.code_points(), (std::vector<uint32_t>{'\n', 'a', 'b', 0xe9}));
  EXPECT_EQ(text.tokens, (std::vector<int32_t>{2, 3, 1, 0, 2}));
  EXPECT_EQ(text.vocabulary.decode(text.tokens), "b\u00e9a\nb");
  EXPECT_EQ(text.vocabulary.encode("\u00e9b"), (std::vector<int32_t>{3, 2}));
  EXPECT_TRUE(text.notes.empty());
}

TEST(Text, BytesTakeAnything) {
  const std::string all("\xff\0\r\x80", 4);
  const TokenizedText text = tokenize(all, {.unit = TokenUnit::bytes}, "a.bin");
  EXPECT_EQ(text.vocabulary.size(), 256);
  EXPECT_EQ(text.tokens, (std::vector<int32_t>{255, 0, 13, 128}));
  EXPECT_EQ(text.vocabulary.decode(text.tokens), all);
}

TEST(Text, UnknownCharactersAndTokensAreNamed) {
  const Vocabulary vocabulary = tokenize("abc", {}, "a.txt").vocabulary;
  expect_holds(message_of<std::invalid_argument>([&] { vocabulary.encode("ab\u00e9"); }),
               "U+00E9 (\u00e9)",
               "at byte 2",
               "not among the 3");
  expect_holds(message_of<std::invalid_argument>([&] { vocabulary.encode("a\r"); }),
               "U+000D at byte 1");
  expect_holds(message_of<std::invalid_argument>([&] { vocabulary.encode("\xff"); }),
               "not UTF-8 at byte 0");
  EXPECT_THROW(vocabulary.decode(std::vector<int32_t>{3}), std::invalid_argument);
  EXPECT_THROW(vocabulary.decode(std::vector<int32_t>{-1}), std::invalid_argument);
  EXPECT_EQ(Vocabulary::ids(50257).decode(std::vector<int32_t>{7, 50256}), "<7><50256>");
  EXPECT_THROW(Vocabulary::ids(10).encode("a"), std::invalid_argument);
}

TEST(Text, EmptyTextIsRefused) {
  expect_holds(message_of<FileError>([] { tokenize("", {}, "a.txt"); }), "a.txt", "is empty");
  expect_holds(
      message_of<FileError>([] { tokenize("\xEF\xBB\xBF\r", {.normalize = true}, "a.txt"); }),
      "is empty");
}

// 65 symbols, as the Shakespeare text has: the newline and 64 others.
std::string text_of_65_symbols(const std::string& line_end) {
  std::string text;
  for (char c = '?'; c < '?' + 64; ++c) {
    text += c;
  }
  return text + line_end + text + line_end;
}

TEST(Cases, FC98_ReturnsAndByteOrderMarksAreSymbolsThatAreReported) {
  const std::string mark = "\xEF\xBB\xBF";
  const TokenizedText plain = tokenize(text_of_65_symbols("\n"), {}, "a.txt");
  const TokenizedText windows = tokenize(text_of_65_symbols("\r\n"), {}, "a.txt");
  const TokenizedText marked = tokenize(mark + text_of_65_symbols("\n"), {}, "a.txt");
  EXPECT_EQ(plain.vocabulary.size(), 65);
  EXPECT_EQ(windows.vocabulary.size(), 66);
  EXPECT_EQ(marked.vocabulary.size(), 66);
  EXPECT_TRUE(plain.notes.empty());
  ASSERT_EQ(windows.notes.size(), 1u);
  expect_holds(windows.notes[0], "2 carriage returns", "U+000D", "kept");
  ASSERT_EQ(marked.notes.size(), 1u);
  expect_holds(marked.notes[0], "byte order mark", "U+FEFF", "kept");
  EXPECT_EQ(plain.vocabulary.difference(windows.vocabulary), "it also has U+000D");
  EXPECT_EQ(plain.vocabulary.difference(marked.vocabulary), "it also has U+FEFF");
  EXPECT_EQ(windows.vocabulary.difference(marked.vocabulary),
            "it also has U+FEFF, and lacks U+000D");
  EXPECT_EQ(plain.vocabulary.difference(plain.vocabulary), "");
  EXPECT_NE(plain.vocabulary.difference(Vocabulary::bytes()), "");
  EXPECT_NE(Vocabulary::ids(10).difference(Vocabulary::ids(11)), "");

  const TokenizedText normal =
      tokenize(mark + text_of_65_symbols("\r\n"), {.normalize = true}, "a.txt");
  EXPECT_EQ(normal.tokens, plain.tokens);
  EXPECT_EQ(normal.notes.size(), 2u);
}

TEST(Text, NamesOfUnitsReadBack) {
  for (const TokenUnit unit : {TokenUnit::chars, TokenUnit::bytes, TokenUnit::ids}) {
    EXPECT_EQ(parse_token_unit(name_of(unit)), unit);
  }
  expect_holds(message_of<std::invalid_argument>([] { parse_token_unit("words"); }),
               "words",
               "chars or bytes");
}

}  // namespace
}  // namespace halftone
