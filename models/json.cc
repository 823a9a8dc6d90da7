#include "models/json.h"

#include <charconv>
#include <cmath>

#include "data/text.h"

namespace halftone {
namespace {

template <class T>
std::string shortest_of(T x) {
  if (std::isnan(x)) {
    return "nan";
  }
  if (std::isinf(x)) {
    return x > 0 ? "inf" : "-inf";
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), x).ptr;
  return {buffer, end};
}

void append_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<std::pair<std::string, JsonValue>> object() {
    std::vector<std::pair<std::string, JsonValue>> fields;
    expect('{');
    if (peek() != '}') {
      do {
        std::string key = string();
        expect(':');
        fields.emplace_back(std::move(key), value());
      } while (take(','));
    }
    expect('}');
    peek();
    require(at_ == text_.size());
    return fields;
  }

 private:
  void require(bool ok) const {
    HALFTONE_CHECK(ok, "json: not a flat object; unexpected text at offset ", at_);
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    const bool found = peek() == c;
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(char c) { require(take(c)); }

  std::string string() {
    expect('"');
    std::string out;
    while (true) {
      require(at_ < text_.size());
      const char c = text_[at_++];
      if (c == '"') {
        return out;
      }
      if (c != '\\') {
        out += c;
        continue;
      }
      require(at_ < text_.size());
      const char escape = text_[at_++];
      if (escape == 'u') {
        uint32_t code = 0;
        require(at_ + 4 <= text_.size());
        const char* begin = text_.data() + at_;
        require(std::from_chars(begin, begin + 4, code, 16).ptr == begin + 4);
        at_ += 4;
        append_utf8(code, out);
      } else {
        require(escape == '"' || escape == '\\' || escape == '/');
        out += escape;
      }
    }
  }

  JsonValue value() {
    if (peek() == '"') {
      return string();
    }
    const size_t end = std::min(text_.find_first_of(",} \n", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    const char* last = word.data() + word.size();
    JsonValue out;
    if (word == "true" || word == "false") {
      out = word == "true";
    } else if (word.find_first_of(".eE") == std::string_view::npos) {
      int64_t number = 0;
      require(!word.empty() && std::from_chars(word.data(), last, number).ptr == last);
      out = number;
    } else {
      double number = 0.0;
      require(std::from_chars(word.data(), last, number).ptr == last);
      out = number;
    }
    at_ = end;
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string shortest(double x) { return shortest_of(x); }
std::string shortest(float x) { return shortest_of(x); }

JsonObject& JsonObject::add_raw(std::string_view key, std::string_view value) {
  fields_ += fields_.empty() ? "" : ",";
  append_string(fields_, key);
  fields_ += ':';
  fields_ += value;
  return *this;
}

JsonObject& JsonObject::add_number(std::string_view key, const std::string& number) {
  const bool is_finite = number.find_first_of("nN") == std::string::npos;
  return is_finite ? add_raw(key, number) : add(key, std::string_view(number));
}

JsonObject& JsonObject::add(std::string_view key, std::string_view value) {
  std::string quoted;
  append_string(quoted, value);
  return add_raw(key, quoted);
}

JsonObject& JsonObject::add_fields(const JsonObject& other) {
  fields_ += fields_.empty() || other.fields_.empty() ? "" : ",";
  fields_ += other.fields_;
  return *this;
}

std::vector<std::pair<std::string, JsonValue>> parse_flat_json(std::string_view text) {
  return Parser(text).object();
}

}  // namespace halftone
