// Bytes that arrive one by one, as whole UTF-8 characters: what a terminal can be shown while a
// model writes bytes.
#pragma once

#include <string>
#include <string_view>

namespace halftone {

class Utf8Stream {
 public:
  /// What can be shown now that `bytes` have arrived. A byte that neither begins nor continues a
  /// character becomes U+FFFD; the start of a character waits for its end.
  std::string push(std::string_view bytes);
  /// The end: a character that never got complete becomes U+FFFD.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace halftone
