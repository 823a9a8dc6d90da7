#include "data/text.h"

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <numeric>
#include <sstream>

#include "core/check.h"
#include "data/files.h"

namespace halftone {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr uint32_t kMaxCodePoint = 0x10FFFF;

std::string join_code_points(const std::vector<uint32_t>& code_points) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t i = 0; i < std::min(code_points.size(), kShown); ++i) {
    out += (i == 0 ? "" : ", ") + describe_code_point(code_points[i]);
  }
  return code_points.size() <= kShown ? out
                                      : concat(out, " and ", code_points.size() - kShown, " more");
}

}  // namespace

std::string_view name_of(TokenUnit unit) {
  constexpr std::string_view kNames[] = {"chars", "bytes", "ids"};
  return kNames[size_t(unit)];
}

TokenUnit parse_token_unit(std::string_view name) {
  for (const TokenUnit unit : {TokenUnit::chars, TokenUnit::bytes, TokenUnit::ids}) {
    if (name == name_of(unit)) {
      return unit;
    }
  }
  throw std::invalid_argument(
      concat("unknown kind of token '", name, "', expected chars or bytes"));
}

DecodedChar decode_char(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) {
    return {first, 1};
  }
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) {
    return {0, 0};
  }
  uint32_t code_point = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return {0, 0};
    }
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return code_point < kSmallest[length] || code_point > kMaxCodePoint || surrogate
             ? DecodedChar{0, 0}
             : DecodedChar{code_point, length};
}

std::vector<uint32_t> decode_utf8(std::string_view text, const std::filesystem::path& path) {
  std::vector<uint32_t> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const DecodedChar decoded = decode_char(text.substr(at));
    if (decoded.length == 0) {
      std::ostringstream byte;
      byte << "0x" << std::hex << std::uppercase << std::setfill('0') << std::setw(2)
           << int(uint8_t(text[at]));
      throw_file_error(path,
                       "is not UTF-8: byte ",
                       byte.str(),
                       " at offset ",
                       at,
                       "; convert the file, or read it as bytes (--text bytes)");
    }
    out.push_back(decoded.code_point);
    at += decoded.length;
  }
  return out;
}

void append_utf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += char(code_point);
    return;
  }
  const int tail = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += char(kLead[tail] | code_point >> (6 * tail));
  for (int i = tail - 1; i >= 0; --i) {
    out += char(0x80 | (code_point >> (6 * i) & 0x3F));
  }
}

std::string describe_code_point(uint32_t code_point) {
  std::ostringstream out;
  out << "U+" << std::hex << std::uppercase << std::setfill('0') << std::setw(4) << code_point;
  // Controls, the byte order mark and line or paragraph separators would garble the message.
  const bool printable = code_point > 0x20 && !(code_point >= 0x7F && code_point <= 0xA0) &&
                         code_point != 0xFEFF && !(code_point >= 0x2000 && code_point <= 0x200F) &&
                         !(code_point >= 0x2028 && code_point <= 0x202F);
  if (printable) {
    std::string character;
    append_utf8(code_point, character);
    out << " (" << character << ")";
  }
  return out.str();
}

Vocabulary Vocabulary::bytes() {
  std::vector<uint32_t> all(256);
  std::iota(all.begin(), all.end(), 0u);
  return {TokenUnit::bytes, 256, std::move(all)};
}

Vocabulary Vocabulary::ids(int64_t size) { return {TokenUnit::ids, size, {}}; }

Vocabulary Vocabulary::of_text(std::span<const uint32_t> code_points) {
  std::vector<bool> seen(size_t{kMaxCodePoint} + 1);
  for (const uint32_t code_point : code_points) {
    HALFTONE_CHECK(
        code_point <= kMaxCodePoint, "vocabulary: ", code_point, " is no Unicode code point");
    seen[code_point] = true;
  }
  std::vector<uint32_t> distinct;
  for (uint32_t code_point = 0; code_point <= kMaxCodePoint; ++code_point) {
    if (seen[code_point]) {
      distinct.push_back(code_point);
    }
  }
  const auto size = int64_t(distinct.size());
  return {TokenUnit::chars, size, std::move(distinct)};
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  HALFTONE_CHECK(unit_ != TokenUnit::ids,
                 "encode: the tokens of this model are numbers of an unknown tokenizer, not text");
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  if (unit_ == TokenUnit::bytes) {
    for (const char byte : text) {
      tokens.push_back(uint8_t(byte));
    }
    return tokens;
  }
  for (size_t at = 0; at < text.size();) {
    const DecodedChar decoded = decode_char(text.substr(at));
    HALFTONE_CHECK(decoded.length > 0, "encode: the text is not UTF-8 at byte ", at);
    const auto found =
        std::lower_bound(code_points_.begin(), code_points_.end(), decoded.code_point);
    HALFTONE_CHECK(found != code_points_.end() && *found == decoded.code_point,
                   "encode: the character ",
                   describe_code_point(decoded.code_point),
                   " at byte ",
                   at,
                   " is not among the ",
                   size_,
                   " of the vocabulary");
    tokens.push_back(int32_t(found - code_points_.begin()));
    at += decoded.length;
  }
  return tokens;
}

std::string Vocabulary::decode(std::span<const int32_t> tokens) const {
  std::string out;
  for (const int32_t token : tokens) {
    HALFTONE_CHECK(token >= 0 && token < size_,
                   "decode: token ",
                   token,
                   " is outside of the vocabulary of ",
                   size_);
    switch (unit_) {
      case TokenUnit::chars:
        append_utf8(code_points_[size_t(token)], out);
        break;
      case TokenUnit::bytes:
        out += char(token);
        break;
      case TokenUnit::ids:
        out += concat("<", token, ">");
        break;
    }
  }
  return out;
}

std::string Vocabulary::difference(const Vocabulary& other) const {
  if (unit_ != other.unit_) {
    return concat("it has ", name_of(other.unit_), " as tokens, not ", name_of(unit_));
  }
  std::vector<uint32_t> added, missing;
  std::set_difference(other.code_points_.begin(),
                      other.code_points_.end(),
                      code_points_.begin(),
                      code_points_.end(),
                      std::back_inserter(added));
  std::set_difference(code_points_.begin(),
                      code_points_.end(),
                      other.code_points_.begin(),
                      other.code_points_.end(),
                      std::back_inserter(missing));
  std::string out;
  if (!added.empty()) {
    out = "it also has " + join_code_points(added);
  }
  if (!missing.empty()) {
    out += (out.empty() ? "it lacks " : ", and lacks ") + join_code_points(missing);
  }
  return out.empty() && size_ != other.size_
             ? concat("it has ", other.size_, " tokens, not ", size_)
             : out;
}

TokenizedText tokenize(std::string text,
                       const TextOptions& options,
                       const std::filesystem::path& path) {
  HALFTONE_CHECK(options.unit != TokenUnit::ids, "tokenize: text is read as chars or bytes");
  std::vector<std::string> notes;
  const std::string kept =
      options.normalize ? "dropped (--normalize)" : "kept; --normalize drops it";
  if (std::string_view(text).starts_with(kByteOrderMark)) {
    notes.push_back(concat(path.string(), ": starts with a byte order mark (U+FEFF), ", kept));
    if (options.normalize) {
      text.erase(0, kByteOrderMark.size());
    }
  }
  if (const auto returns = std::count(text.begin(), text.end(), '\r'); returns > 0) {
    notes.push_back(concat(path.string(), ": has ", returns, " carriage returns (U+000D), ", kept));
    if (options.normalize) {
      std::erase(text, '\r');
    }
  }
  if (text.empty()) {
    throw_file_error(path, "is empty, expected text");
  }
  if (options.unit == TokenUnit::bytes) {
    Vocabulary vocabulary = Vocabulary::bytes();
    std::vector<int32_t> tokens = vocabulary.encode(text);
    return {std::move(tokens), std::move(vocabulary), std::move(notes)};
  }
  const std::vector<uint32_t> code_points = decode_utf8(text, path);
  Vocabulary vocabulary = Vocabulary::of_text(code_points);
  std::vector<int32_t> token_of(size_t{kMaxCodePoint} + 1);
  for (int64_t token = 0; token < vocabulary.size(); ++token) {
    token_of[vocabulary.code_points()[size_t(token)]] = int32_t(token);
  }
  std::vector<int32_t> tokens(code_points.size());
  std::transform(code_points.begin(), code_points.end(), tokens.begin(), [&](uint32_t c) {
    return token_of[c];
  });
  return {std::move(tokens), std::move(vocabulary), std::move(notes)};
}

}  // namespace halftone
