#include "data/tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "data/files.h"
#include "data/stored_type.h"

namespace halftone {
namespace {

constexpr size_t kHeaderBytes = size_t{256} * 4;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

uint32_t word(std::span<const uint8_t> content, size_t index) {
  uint32_t value;
  std::memcpy(&value, content.data() + 4 * index, 4);
  return value;
}

template <class T>
std::vector<int64_t> widen(std::span<const uint8_t> bytes, const std::filesystem::path& path) {
  if (bytes.size() % sizeof(T) != 0) {
    throw_file_error(path, bytes.size(), " bytes of tokens are not a multiple of ", sizeof(T));
  }
  return widen_integers<T>(bytes);
}

// Raw tokens, which have no header that would show their byte order: small tokens in the wrong one
// all end in zeros, and would make a vocabulary of hundreds of millions.
template <class T>
std::vector<int64_t> widen_raw(std::span<const uint8_t> bytes, const std::filesystem::path& path) {
  constexpr int64_t kHalf = int64_t{1} << (4 * sizeof(T));
  std::vector<int64_t> tokens = widen<T>(bytes, path);
  const bool ends_in_zeros =
      std::all_of(tokens.begin(), tokens.end(), [](int64_t token) { return token % kHalf == 0; });
  const auto nonzero =
      std::find_if(tokens.begin(), tokens.end(), [](int64_t token) { return token != 0; });
  if (ends_in_zeros && nonzero != tokens.end()) {
    throw_file_error(path,
                     "every token is a multiple of ",
                     kHalf,
                     ", such as ",
                     *nonzero,
                     ": their bytes seem to be swapped; raw tokens are little-endian");
  }
  return tokens;
}

// The tokens behind a header, all of whose claims are checked.
std::span<const uint8_t> body_of(std::span<const uint8_t> content,
                                 const std::filesystem::path& path) {
  if (word(content, 0) != kTokenFileMagic) {
    throw_file_error(path,
                     "its magic number has its bytes swapped; token files are little-endian: write "
                     "the file again");
  }
  if (content.size() < kHeaderBytes) {
    throw_file_error(
        path, "is truncated: ", content.size(), " bytes, the header alone has ", kHeaderBytes);
  }
  if (word(content, 1) != 1) {
    throw_file_error(
        path, "is a token file of version ", word(content, 1), ", expected 1 (u16 tokens)");
  }
  const std::span<const uint8_t> body = content.subspan(kHeaderBytes);
  const uint64_t expected = uint64_t{2} * word(content, 2);
  if (body.size() != expected) {
    throw_file_error(path,
                     body.size() < expected ? "is truncated" : "is too long",
                     ": its header says ",
                     word(content, 2),
                     " tokens, that is ",
                     expected,
                     " bytes, and ",
                     body.size(),
                     " follow");
  }
  return body;
}

}  // namespace

bool has_token_header(std::span<const uint8_t> content) {
  return content.size() >= 12 && (word(content, 0) == kTokenFileMagic ||
                                  word(content, 0) == __builtin_bswap32(kTokenFileMagic));
}

void check_tokens(std::span<const int64_t> tokens,
                  int64_t vocabulary,
                  const std::filesystem::path& path) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](int64_t token) {
    return token < 0 || token >= vocabulary;
  });
  if (bad != tokens.end()) {
    throw_file_error(path,
                     "token ",
                     *bad,
                     " at index ",
                     bad - tokens.begin(),
                     " is outside of the vocabulary of ",
                     vocabulary,
                     " (0 to ",
                     vocabulary - 1,
                     ")");
  }
}

TokenFile read_token_file(const std::filesystem::path& path, int64_t vocabulary) {
  const std::vector<uint8_t> content = read_file(path);
  std::vector<int64_t> tokens;
  if (has_token_header(content)) {
    tokens = widen<uint16_t>(body_of(content, path), path);
    vocabulary = vocabulary > 0 ? vocabulary : kGpt2Vocabulary;
  } else if (path.extension() == ".u16") {
    tokens = widen_raw<uint16_t>(content, path);
  } else if (path.extension() == ".u32") {
    tokens = widen_raw<uint32_t>(content, path);
  } else {
    throw_file_error(path,
                     "is not a token file: its first word is ",
                     content.size() < 4 ? 0 : word(content, 0),
                     ", expected ",
                     kTokenFileMagic,
                     " (llm.c); raw tokens are named .u16 or .u32");
  }
  if (tokens.empty()) {
    throw_file_error(path, "holds no tokens");
  }
  if (vocabulary == 0) {
    vocabulary = *std::max_element(tokens.begin(), tokens.end()) + 1;
  }
  check_tokens(tokens, std::min<int64_t>(vocabulary, std::numeric_limits<int32_t>::max()), path);
  return {{tokens.begin(), tokens.end()}, vocabulary};
}

}  // namespace halftone
