#include "data/utf8_stream.h"

#include <gtest/gtest.h>

#include "core/check.h"

namespace halftone {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// Every state of the stream after each byte, joined by '|'.
std::string byte_by_byte(std::string_view text) {
  Utf8Stream stream;
  std::string shown;
  for (const char byte : text) {
    shown += stream.push(std::string_view(&byte, 1)) + "|";
  }
  return shown + stream.finish();
}

TEST(Utf8Stream, CharactersAppearWhenTheyAreComplete) {
  EXPECT_EQ(byte_by_byte("a\xC3\xA9z"), "a||\xC3\xA9|z|");
  EXPECT_EQ(byte_by_byte("\xE2\x82\xAC"), "||\xE2\x82\xAC|");
  EXPECT_EQ(byte_by_byte("\xF0\x9F\x98\x80"), "|||\xF0\x9F\x98\x80|");
}

TEST(Utf8Stream, TextComesThroughWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("na\xC3\xAFve \xE2\x82"), "na\xC3\xAFve ");
  EXPECT_EQ(stream.push("\xAC 5"), "\xE2\x82\xAC 5");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(byte_by_byte("\x80"), std::string(kReplacement) + "|");
  EXPECT_EQ(byte_by_byte("\xFF\x41"), std::string(kReplacement) + "|A|");
  // The start of a character, cut short by a letter, and by the end.
  EXPECT_EQ(byte_by_byte("\xE2\x82\x41"), concat("||", kReplacement, kReplacement, "A|"));
  EXPECT_EQ(byte_by_byte("\xE2"), concat("|", kReplacement));
  // A surrogate is no character: its three bytes go one by one.
  EXPECT_EQ(byte_by_byte("\xED\xA0\x80"),
            concat("||", kReplacement, kReplacement, kReplacement, "|"));
}

}  // namespace
}  // namespace halftone
