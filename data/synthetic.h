// Generated data, for machines that reach no mirror and for tests: digits drawn from strokes, and
// text from a small grammar. The same seed gives the same bytes on every machine: arithmetic that
// IEEE 754 fixes, and Philox draws; no library function.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/dataset.h"

namespace halftone {

/// 28x28 images of the digits 0 to 9 (image i shows i % 10): each a polyline under a random
/// rotation, shear, scale and shift, with jittered corners, a random stroke width and ink, smudges,
/// and noise. The test set is drawn like the training set, and differs from it in every image. An
/// MLP gets nearly all of them right, a linear classifier does not.
ImageDataset synthetic_digits(int64_t num_train = 12000,
                              int64_t num_test = 2000,
                              uint64_t seed = 1);

/// About `num_bytes` of sentences from a small grammar, ASCII, one paragraph a line.
std::string synthetic_text(size_t num_bytes = 200000, uint64_t seed = 1);

/// Writes the four IDX files (not compressed) into `folder`, which is made where it is missing.
void write_idx_folder(const ImageDataset& data, const std::filesystem::path& folder);

}  // namespace halftone
