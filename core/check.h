// Checks for a caller's mistakes. A failed check throws std::invalid_argument with a message that
// says what was expected and what was found; the operation's name comes first ("matmul: inner
// dimensions differ: ..."). The condition is brace-initialised to bool, so a stray string or
// pointer does not compile.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "Halftone needs NaN and infinity: build without -ffast-math and -ffinite-math-only."
#endif

namespace halftone {

/// All arguments printed one after the other, as operator<< prints them.
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace halftone

#define HALFTONE_CHECK(condition, ...)                              \
  do {                                                              \
    if (const bool halftone_ok_{condition}; !halftone_ok_) {        \
      throw std::invalid_argument(::halftone::concat(__VA_ARGS__)); \
    }                                                               \
  } while (false)
