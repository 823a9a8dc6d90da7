// Files of token numbers: llm.c's (a header of 256 32-bit integers, then u16 tokens) and raw
// little-endian `.u16` and `.u32`. Sizes are checked against the header, and every token against
// the vocabulary, before anything is trained. Source of the header: karpathy/llm.c,
// llmc/dataloader.h (magic 20240520, version 1, number of tokens).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace halftone {

inline constexpr uint32_t kTokenFileMagic = 20240520;
/// What llm.c's version 1 files hold: tokens of GPT-2.
inline constexpr int64_t kGpt2Vocabulary = 50257;

struct TokenFile {
  std::vector<int32_t> tokens;
  int64_t vocabulary;  ///< as stated by the format or the caller, else the largest token + 1
};

/// Whether the content starts with llm.c's magic number (in either byte order, so that a swapped
/// file is named as such).
bool has_token_header(std::span<const uint8_t> content);

/// A file in llm.c's format, or raw by its extension `.u16` or `.u32`. `vocabulary` > 0 states the
/// number of tokens; 0 leaves it to the file. Throws FileError for another magic, version or size,
/// a token outside of the vocabulary, or no tokens.
TokenFile read_token_file(const std::filesystem::path& path, int64_t vocabulary = 0);

/// Throws FileError naming the first of `tokens` that is not in [0, vocabulary), and its index.
void check_tokens(std::span<const int64_t> tokens,
                  int64_t vocabulary,
                  const std::filesystem::path& path);

}  // namespace halftone
