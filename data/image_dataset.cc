// Loading of ImageDataset.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "data/dataset.h"
#include "data/files.h"
#include "data/hdf5_file.h"
#include "data/idx.h"
#include "data/known_data.h"
#include "data/npy.h"
#include "data/synthetic.h"

namespace halftone {
namespace {

namespace fs = std::filesystem;

constexpr int kImageRank = 3;
constexpr int kLabelRank = 1;

ByteArray bytes_of_npy(const fs::path& path, int rank) {
  NpyArray array = read_npy(path);
  if (int(array.dims.size()) != rank) {
    throw_file_error(path, "has shape ", to_string(array.dims), ", expected ", rank, " dimensions");
  }
  if (array.type == StoredType::u8) {
    return {std::move(array.dims), std::move(array.bytes)};
  }
  const std::vector<int64_t> values = to_integers(array, path);  // labels are often saved as i64
  const auto bad =
      std::find_if(values.begin(), values.end(), [](int64_t v) { return v < 0 || v > 255; });
  if (bad != values.end()) {
    throw_file_error(
        path, "holds ", *bad, " at index ", bad - values.begin(), ", expected 0 to 255");
  }
  return {std::move(array.dims), {values.begin(), values.end()}};
}

ByteArray part_of_folder(const fs::path& folder, const std::string& stem, int rank) {
  if (const auto idx = find_idx(folder, stem, rank)) {
    return read_idx(*idx, rank);
  }
  std::error_code ignored;
  if (const fs::path npy = folder / (stem + ".npy"); fs::exists(npy, ignored)) {
    return bytes_of_npy(npy, rank);
  }
  throw_file_error(folder,
                   "has no ",
                   stem,
                   "-idx",
                   rank,
                   "-ubyte (nor with a dot before idx, .gz behind it, or as ",
                   stem,
                   ".npy)");
}

// Images and labels that belong together.
ImageSet join(ByteArray images, ByteArray labels, const std::string& where) {
  if (images.dims[0] != labels.dims[0]) {
    throw FileError(concat(where,
                           ": ",
                           images.dims[0],
                           " images and ",
                           labels.dims[0],
                           " labels; each image needs one label"));
  }
  if (images.bytes.empty()) {
    throw FileError(concat(where, ": holds no images (", to_string(images.dims), ")"));
  }
  return {images.dims[0],
          images.dims[1],
          images.dims[2],
          std::move(images.bytes),
          std::move(labels.bytes)};
}

ByteArray bytes_of_hdf5(const Hdf5File& file, const std::string& name, int rank) {
  const DatasetInfo info = file.info(name);
  if (info.type != StoredType::u8 || int(info.dims.size()) != rank) {
    throw_file_error(file.path(),
                     name,
                     " is ",
                     name_of(info.type),
                     " ",
                     to_string(info.dims),
                     ", expected u8 of ",
                     rank,
                     " dimensions");
  }
  return {info.dims, file.read<uint8_t>(name)};
}

// The last `count` images of `set`, taken off it.
ImageSet take_tail(ImageSet& set, int64_t count) {
  const int64_t kept = set.count - count;
  const auto pixel = set.pixels.begin() + kept * set.height * set.width;
  ImageSet tail{count,
                set.height,
                set.width,
                {pixel, set.pixels.end()},
                {set.labels.begin() + kept, set.labels.end()}};
  set.pixels.erase(pixel, set.pixels.end());
  set.labels.resize(size_t(kept));
  set.count = kept;
  return tail;
}

void load_hdf5(const fs::path& path, ImageDataset& out) {
  const Hdf5File file = Hdf5File::open(path);
  out.train = join(bytes_of_hdf5(file, "/images", kImageRank),
                   bytes_of_hdf5(file, "/labels", kLabelRank),
                   path.string());
  if (file.has("/test_images")) {
    out.test = join(bytes_of_hdf5(file, "/test_images", kImageRank),
                    bytes_of_hdf5(file, "/test_labels", kLabelRank),
                    path.string() + " (test)");
    return;
  }
  if (out.train.count < 2) {
    throw_file_error(path,
                     "holds one image and no /test_images; at least one image to train on and one "
                     "to test are needed");
  }
  out.test = take_tail(out.train, std::max<int64_t>(out.train.count / 10, 1));
}

void load_folder(const fs::path& folder, ImageDataset& out) {
  const auto load = [&](const std::string& part) {
    ByteArray images = part_of_folder(folder, part + "-images", kImageRank);
    ByteArray labels = part_of_folder(folder, part + "-labels", kLabelRank);
    return join(std::move(images), std::move(labels), (folder / part).string());
  };
  out.train = load("train");
  out.test = load("t10k");
}

void check_whole(ImageDataset& data) {
  if (data.train.height != data.test.height || data.train.width != data.test.width) {
    throw FileError(concat(data.source,
                           ": training images are ",
                           data.train.height,
                           "x",
                           data.train.width,
                           ", test images ",
                           data.test.height,
                           "x",
                           data.test.width));
  }
  constexpr int64_t kFewest = 2;
  data.num_classes = std::max<int64_t>(
      kFewest, 1 + *std::max_element(data.train.labels.begin(), data.train.labels.end()));
  const auto bad = std::find_if(data.test.labels.begin(),
                                data.test.labels.end(),
                                [&](uint8_t label) { return label >= data.num_classes; });
  if (bad != data.test.labels.end()) {
    throw FileError(concat(data.source,
                           ": test label ",
                           int(*bad),
                           " at index ",
                           bad - data.test.labels.begin(),
                           ", but the training labels end at ",
                           data.num_classes - 1));
  }
}

}  // namespace

ImageDataset load_image_dataset(const std::string& spec) {
  if (spec == kSyntheticName) {
    return synthetic_digits();
  }
  const fs::path path = is_known_data(spec) ? locate_known_data(spec) : fs::path(spec);
  ImageDataset out;
  out.source = path.string();
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw_file_error(
        path,
        "cannot open: ",
        error ? error.message() : "No such file or directory",
        "; --data takes mnist, synthetic, a folder with the four IDX or .npy files, or an .h5");
  }
  if (fs::is_directory(status)) {
    load_folder(path, out);
  } else if (path.extension() == ".h5" || path.extension() == ".hdf5") {
    load_hdf5(path, out);
  } else {
    throw_file_error(
        path,
        "is one file; images come as a folder with train-images, train-labels, t10k-images and "
        "t10k-labels (IDX or .npy), or as an .h5 with /images and /labels");
  }
  check_whole(out);
  return out;
}

}  // namespace halftone
