// The little JSON that logs and checkpoints need: objects written field by field, and flat objects
// (no nesting) read back. Numbers are printed with as few digits as give the same value back; a
// number that is not finite is the string "nan", "inf" or "-inf".
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"

namespace halftone {

using JsonValue = std::variant<bool, int64_t, double, std::string>;

/// The shortest text that reads back as x: "0.001", "1e-05", "nan", "-inf".
std::string shortest(double x);
std::string shortest(float x);

/// One JSON object being written, in the order of the calls.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, double value) { return add_number(key, shortest(value)); }
  JsonObject& add(std::string_view key, float value) { return add_number(key, shortest(value)); }
  JsonObject& add(std::string_view key, std::integral auto value) {
    if constexpr (std::same_as<decltype(value), bool>) {
      return add_raw(key, value ? "true" : "false");
    } else {
      return add_raw(key, std::to_string(value));
    }
  }
  JsonObject& add(std::string_view key, std::string_view value);
  JsonObject& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonObject& add(std::string_view key, const JsonObject& value) {
    return add_raw(key, value.text());
  }

  /// All fields of another object behind these.
  JsonObject& add_fields(const JsonObject& other);

  std::string text() const { return concat("{", fields_, "}"); }

 private:
  JsonObject& add_raw(std::string_view key, std::string_view value);
  JsonObject& add_number(std::string_view key, const std::string& number);

  std::string fields_;
};

/// The fields of a flat object, in order. A number without fraction and exponent is an int64_t.
/// Throws std::invalid_argument with the offset where the text is not such an object.
std::vector<std::pair<std::string, JsonValue>> parse_flat_json(std::string_view text);

}  // namespace halftone
