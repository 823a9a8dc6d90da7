// The command line of a program: every flag is declared once, with its kind, limits, default and
// what it is for; values are checked and brought to one spelling while they are parsed, so that a
// flag can be compared with what a checkpoint holds. Built on cxxopts, whose traps are handled
// here: leftover words are errors, lists are not split, a value may start with a minus sign.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "models/json.h"

namespace halftone {

/// The command line alone is wrong: programs print the message and a hint, and exit with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void throw_usage(const Args&... args) {
  throw UsageError(concat(args...));
}

struct Flag {
  enum class Kind : uint8_t { text, choice, integer, real, present };
  /// What a checkpoint does with it: process flags are not stored; a run flag is stored, and may be
  /// changed when the run is resumed only if it is `adjustable`.
  enum class Scope : uint8_t { process, run, adjustable };

  std::string name;  // without dashes
  Kind kind = Kind::text;
  std::string default_value{};  // in its one spelling; may be empty
  std::string help{};
  Scope scope = Scope::run;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool below_high = false;             // high itself is not allowed
  std::vector<std::string> choices{};  // of Kind::choice
  bool repeats = false;
  /// Brings a text to its one spelling, or throws std::invalid_argument.
  std::function<std::string(const std::string&)> canonical{};
};

class Flags {
 public:
  Flags(std::string program, std::string description);

  void add(Flag flag);
  /// Parses the command line. Throws UsageError with one line that names the option.
  void parse(int argc, const char* const* argv);

  bool is_declared(std::string_view name) const;
  bool given(std::string_view name) const { return find(name).given; }
  const std::string& text(std::string_view name) const { return find(name).values.back(); }
  const std::vector<std::string>& texts(std::string_view name) const { return find(name).values; }
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool is_on(std::string_view name) const { return text(name) == "on"; }
  bool has(std::string_view name) const { return !text(name).empty(); }

  /// Replaces a value from within the program (a default that depends on another flag).
  void set(std::string_view name, const std::string& value);
  void set(std::string_view name, int64_t value) { set(name, std::to_string(value)); }

  /// The fields a checkpoint stores: every run and adjustable flag that has a value.
  void store(JsonObject& config) const;
  /// Takes the values of a checkpoint's fields; fields that are no flags are left alone. Throws
  /// UsageError naming both values where a given flag that is not adjustable contradicts.
  void take_stored(const std::vector<std::pair<std::string, JsonValue>>& fields,
                   const std::string& source);

  std::string help() const;
  const std::string& program() const { return program_; }

 private:
  struct Entry {
    Flag flag;
    std::vector<std::string> values;  // in their one spelling; the default until parsed
    bool given = false;
  };
  const Entry& find(std::string_view name) const;
  Entry& find(std::string_view name);
  static std::string canonical(const Flag& flag, const std::string& value);
  std::string closest(std::string_view name) const;

  std::string program_;
  std::string description_;
  std::vector<Entry> entries_;
};

}  // namespace halftone
