// Loading of TokenDataset.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/check.h"
#include "data/dataset.h"
#include "data/files.h"
#include "data/gzip.h"
#include "data/hdf5_file.h"
#include "data/known_data.h"
#include "data/npy.h"
#include "data/synthetic.h"
#include "data/tokens.h"

namespace halftone {
namespace {

namespace fs = std::filesystem;

TokenDataset from_integers(const std::vector<int64_t>& tokens,
                           Vocabulary vocabulary,
                           const fs::path& path) {
  if (tokens.empty()) {
    throw_file_error(path, "holds no tokens");
  }
  check_tokens(tokens, vocabulary.size(), path);
  return split_tokens({tokens.begin(), tokens.end()}, std::move(vocabulary), path.string());
}

template <class T>
std::vector<int64_t> widen(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

TokenDataset load_hdf5(const fs::path& path) {
  const Hdf5File file = Hdf5File::open(path);
  const DatasetInfo info = file.info("/tokens");
  if (info.dims.size() != 1 || (info.type != StoredType::u16 && info.type != StoredType::u32)) {
    throw_file_error(path,
                     "/tokens is ",
                     name_of(info.type),
                     " ",
                     to_string(info.dims),
                     ", expected u16 or u32 of one dimension");
  }
  const std::vector<int64_t> tokens = info.type == StoredType::u16
                                          ? widen(file.read<uint16_t>("/tokens"))
                                          : widen(file.read<uint32_t>("/tokens"));
  const int64_t size = file.integer("/tokens", "vocab");
  if (size < 1 || size > std::numeric_limits<int32_t>::max()) {
    throw_file_error(path, "/tokens@vocab is ", size, ", expected the number of distinct tokens");
  }
  Vocabulary vocabulary = Vocabulary::ids(size);
  if (file.has("/vocab")) {
    const std::vector<uint32_t> code_points = file.read<uint32_t>("/vocab");
    vocabulary = Vocabulary::of_text(code_points);
    if (vocabulary.size() != size) {
      throw_file_error(path,
                       "/vocab has ",
                       vocabulary.size(),
                       " distinct code points and /tokens@vocab is ",
                       size);
    }
    if (vocabulary.code_points() != code_points) {  // token i would be read as another character
      throw_file_error(path, "/vocab is not in ascending order, each code point once");
    }
  }
  return from_integers(tokens, std::move(vocabulary), path);
}

TokenDataset load_npy(const fs::path& path) {
  const NpyArray array = read_npy(path);
  if (array.dims.size() != 1) {
    throw_file_error(
        path, "has shape ", to_string(array.dims), ", expected one dimension of tokens");
  }
  const std::vector<int64_t> tokens = to_integers(array, path);
  const int64_t largest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  return from_integers(tokens, Vocabulary::ids(std::clamp<int64_t>(largest + 1, 1, kLimit)), path);
}

TokenDataset load_text(const fs::path& path, const TextOptions& options) {
  const std::vector<uint8_t> content = read_maybe_gzip(path);
  TokenizedText text = tokenize({content.begin(), content.end()}, options, path);
  TokenDataset out =
      split_tokens(std::move(text.tokens), std::move(text.vocabulary), path.string());
  out.notes = std::move(text.notes);
  return out;
}

}  // namespace

TokenDataset split_tokens(std::vector<int32_t> tokens, Vocabulary vocabulary, std::string source) {
  const auto num_train = ptrdiff_t(tokens.size() * 9 / 10);
  TokenDataset out;
  out.source = std::move(source);
  out.vocabulary = std::move(vocabulary);
  out.val.assign(tokens.begin() + num_train, tokens.end());
  tokens.resize(size_t(num_train));
  out.train = std::move(tokens);
  return out;
}

TokenDataset load_token_dataset(const std::string& spec, const TextOptions& options) {
  if (spec == kSyntheticName) {
    TokenizedText text = tokenize(synthetic_text(), options, kSyntheticName);
    return split_tokens(std::move(text.tokens), std::move(text.vocabulary), kSyntheticName);
  }
  fs::path path = is_known_data(spec) ? locate_known_data(spec) : fs::path(spec);
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && fs::exists(path / "input.txt", ignored)) {
    path /= "input.txt";  // the folder that data/fetch.sh makes
  }
  const std::string extension = path.extension().string();
  if (extension == ".h5" || extension == ".hdf5") {
    return load_hdf5(path);
  }
  if (extension == ".npy") {
    return load_npy(path);
  }
  const bool named_tokens = extension == ".u16" || extension == ".u32" || extension == ".bin";
  if (named_tokens || has_token_header(read_file(path))) {
    TokenFile file = read_token_file(path);
    return split_tokens(std::move(file.tokens), Vocabulary::ids(file.vocabulary), path.string());
  }
  return load_text(path, options);
}

}  // namespace halftone
