#include "data/utf8_stream.h"

#include <algorithm>

#include "data/text.h"

namespace halftone {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Whether more bytes could make `text`, which is not a character, into one.
bool is_start_of_character(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text.front());
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  return lead >= 0xC2 && lead <= 0xF4 && text.size() < length &&
         std::all_of(text.begin() + 1, text.end(), [](char byte) {
           return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
         });
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string shown;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t length = decode_char(rest).length;
    if (length == 0 && is_start_of_character(rest)) {
      break;
    }
    shown += length == 0 ? kReplacement : rest.substr(0, length);
    rest.remove_prefix(std::max<size_t>(1, length));
  }
  pending_ = std::string(rest);
  return shown;
}

std::string Utf8Stream::finish() {
  std::string shown;
  if (!pending_.empty()) {
    shown = kReplacement;
  }
  pending_.clear();
  return shown;
}

}  // namespace halftone
