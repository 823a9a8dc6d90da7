// Text as tokens: characters (one token a Unicode code point) or bytes. Nothing is dropped behind
// the user's back: a byte order mark or carriage returns stay in and are reported, since one symbol
// more makes another vocabulary; `normalize` drops them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halftone {

/// What a token stands for. `ids`: a number of some tokenizer that is not known here.
enum class TokenUnit : uint8_t { chars, bytes, ids };

/// "chars", "bytes" or "ids"; the first two are the values of --text.
std::string_view name_of(TokenUnit unit);
TokenUnit parse_token_unit(std::string_view name);

struct DecodedChar {
  uint32_t code_point;
  size_t length;
};
/// The code point at the front of a text that is not empty, and its length in bytes; length 0 where
/// the bytes are not UTF-8 (RFC 3629), or end too early.
DecodedChar decode_char(std::string_view text);

/// The code points of UTF-8 text. Throws FileError naming the offset of the first byte that is not
/// valid UTF-8 (overlong forms, surrogates and values above U+10FFFF are not). `path` is for
/// messages alone.
std::vector<uint32_t> decode_utf8(std::string_view text, const std::filesystem::path& path);

/// Appends a code point as UTF-8.
void append_utf8(uint32_t code_point, std::string& out);

/// "U+000D", and the character itself behind it where it can be printed: "U+00E9 (é)".
std::string describe_code_point(uint32_t code_point);

/// The symbols of a model, in the order of their tokens: code points in ascending order, each once.
class Vocabulary {
 public:
  /// Bytes: 256 tokens. Ids: `size` tokens without a text.
  static Vocabulary bytes();
  static Vocabulary ids(int64_t size);
  /// The distinct code points of a text, or those read back from a checkpoint.
  static Vocabulary of_text(std::span<const uint32_t> code_points);

  int64_t size() const { return size_; }
  TokenUnit unit() const { return unit_; }
  /// Sorted; for bytes 0 to 255, for ids empty.
  const std::vector<uint32_t>& code_points() const { return code_points_; }

  /// Tokens of UTF-8 text. A character that is not in the vocabulary is a std::invalid_argument
  /// naming it and its position; so is any text for `ids`.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Text of tokens, each in [0, size()); "<123>" for ids.
  std::string decode(std::span<const int32_t> tokens) const;

  /// Empty where both are the same, else how `other` differs, symbols named: "it also has U+000D".
  std::string difference(const Vocabulary& other) const;

 private:
  Vocabulary(TokenUnit unit, int64_t size, std::vector<uint32_t> code_points)
      : unit_(unit), size_(size), code_points_(std::move(code_points)) {}

  TokenUnit unit_;
  int64_t size_;
  std::vector<uint32_t> code_points_;
};

struct TextOptions {
  TokenUnit unit = TokenUnit::chars;
  bool normalize = false;  ///< drop a byte order mark at the start, and every carriage return
};

struct TokenizedText {
  std::vector<int32_t> tokens;
  Vocabulary vocabulary;
  std::vector<std::string>
      notes;  ///< what the user should know: a byte order mark, carriage returns
};

/// Tokens of a text. Throws FileError where it is empty, or for chars where it is not UTF-8.
TokenizedText tokenize(std::string text,
                       const TextOptions& options,
                       const std::filesystem::path& path);

}  // namespace halftone
