// The message of the exception an expression throws, for tests that pin what a user is told.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <typeinfo>

namespace halftone::testing {

/// What `action` throws, which must be an Exception; fails the test and returns "" otherwise.
template <class Exception, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception (" << typeid(error).name() << "): " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Fails unless `text` holds each of the pieces.
template <class... Pieces>
void expect_holds(const std::string& text, const Pieces&... pieces) {
  for (const std::string& piece : {std::string(pieces)...}) {
    EXPECT_NE(text.find(piece), std::string::npos) << "'" << text << "' lacks '" << piece << "'";
  }
}

}  // namespace halftone::testing
