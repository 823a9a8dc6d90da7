// Data sets as the trainer sees them: images with labels, or tokens, each with a part for training
// and one for measuring. Everything is checked while loading, so that no bad file is met in the
// middle of a run; a file's fault is a FileError.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/text.h"

namespace halftone {

/// `count` grey images, u8 [count, height, width], and their labels, u8 [count].
struct ImageSet {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
};

struct ImageDataset {
  std::string source;  ///< what was loaded, for the log
  ImageSet train;
  ImageSet test;
  int64_t num_classes = 0;  ///< the largest training label + 1; every test label is below it
};

/// Loads `spec`: mnist; synthetic (generated digits, always the same); a folder with train-images,
/// train-labels, t10k-images and t10k-labels as IDX files (data/idx.h) or as .npy; an .h5 with
/// /images [n, h, w] u8, /labels [n] u8, and for the test set /test_images and /test_labels, or
/// else its last tenth. No training image is held out of the others. Throws FileError where a file
/// is missing or bad, counts or sizes disagree, or a label is out of range.
ImageDataset load_image_dataset(const std::string& spec);

/// The first 90% of the tokens and the last 10%.
struct TokenDataset {
  std::string source;
  std::vector<int32_t> train;
  std::vector<int32_t> val;
  Vocabulary vocabulary = Vocabulary::ids(0);
  std::vector<std::string> notes;  ///< what the log should say about the text
};

/// Loads `spec`: tinyshakespeare (or shakespeare); synthetic (generated text, always the same); an
/// .h5 with /tokens [n] u16 or u32, its attribute `vocab` (the size) and perhaps /vocab [size] u32
/// (code points); a one-dimensional .npy of integers; a token file (data/tokens.h); any other file
/// is text, gzip or not. `options` concern text alone. Throws FileError where the file is missing
/// or bad, or a token is out of range.
TokenDataset load_token_dataset(const std::string& spec, const TextOptions& options = {});

/// Splits tokens into the first floor(0.9 n) and the rest.
TokenDataset split_tokens(std::vector<int32_t> tokens, Vocabulary vocabulary, std::string source);

}  // namespace halftone
