#include "data/dataset.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "data/files.h"
#include "data/hdf5_file.h"
#include "data/idx.h"
#include "data/known_data.h"
#include "data/synthetic.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::message_of;
using testing::TempFolder;
namespace fs = std::filesystem;

// Sets an environment variable for the length of a test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_.has_value() ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

ImageDataset small_digits() { return synthetic_digits(40, 20, 3); }

std::string image_refusal(const fs::path& path) {
  return message_of<FileError>([&] { load_image_dataset(path.string()); });
}

std::string token_refusal(const fs::path& path, const TextOptions& options = {}) {
  return message_of<FileError>([&] { load_token_dataset(path.string(), options); });
}

void write_labels(const TempFolder& folder, const char* name, const std::vector<uint8_t>& labels) {
  replace_file(folder / name, format_idx({{int64_t(labels.size())}, labels}));
}

TEST(ImageDataset, FolderOfIdxFilesLoadsWhole) {
  const TempFolder folder;
  const ImageDataset written = small_digits();
  write_idx_folder(written, folder.path());
  const ImageDataset found = load_image_dataset(folder.path().string());
  EXPECT_EQ(found.train.pixels, written.train.pixels);
  EXPECT_EQ(found.test.labels, written.test.labels);
  EXPECT_EQ(found.train.count, 40);
  EXPECT_EQ(found.test.height, 28);
  EXPECT_EQ(found.num_classes, 10);
}

TEST(ImageDataset, Hdf5WithAndWithoutATestSet) {
  const TempFolder folder;
  const ImageDataset digits = small_digits();
  Hdf5File file = Hdf5File::create();
  file.write<uint8_t>("/images", {40, 28, 28}, digits.train.pixels, {16, 28, 28});
  file.write<uint8_t>("/labels", {40}, digits.train.labels);
  file.save(folder / "one.h5");
  const ImageDataset tenth = load_image_dataset((folder / "one.h5").string());
  EXPECT_EQ(tenth.train.count, 36);
  EXPECT_EQ(tenth.test.count, 4);
  EXPECT_EQ(tenth.test.labels,
            std::vector<uint8_t>(digits.train.labels.end() - 4, digits.train.labels.end()));
  EXPECT_EQ(tenth.test.pixels,
            std::vector<uint8_t>(digits.train.pixels.end() - 4 * 784, digits.train.pixels.end()));
  file.write<uint8_t>("/test_images", {20, 28, 28}, digits.test.pixels);
  file.write<uint8_t>("/test_labels", {20}, digits.test.labels);
  file.save(folder / "two.h5");
  const ImageDataset both = load_image_dataset((folder / "two.h5").string());
  EXPECT_EQ(both.train.pixels, digits.train.pixels);
  EXPECT_EQ(both.test.pixels, digits.test.pixels);
}

TEST(ImageDataset, FolderOfNpyFilesLoads) {
  const TempFolder folder;
  const auto npy = [&](const std::string& name,
                       const std::string& descr,
                       const std::string& shape,
                       const std::string& data) {
    const std::string header =
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
    folder.write(name + ".npy",
                 std::string("\x93NUMPY\1\0", 8) + char(header.size()) + '\0' + header + data);
  };
  for (const std::string part : {"train", "t10k"}) {
    npy(part + "-images", "|u1", "(2, 1, 3)", "abcdef");
    npy(part + "-labels", "<u2", "(2,)", std::string("\1\0\0\0", 4));
  }
  const ImageDataset found = load_image_dataset(folder.path().string());
  EXPECT_EQ(found.train.labels, (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(found.train.width, 3);
  npy("t10k-labels", "<u2", "(2,)", std::string("\1\0\0\1", 4));
  expect_holds(image_refusal(folder.path()), "t10k-labels.npy", "256 at index 1");
}

TEST(ImageDataset, MissingAndMismatchedPartsAreRefused) {
  const TempFolder folder;
  expect_holds(image_refusal(folder / "none"), "none", "No such file", "--data takes");
  expect_holds(image_refusal(folder.path()), "has no train-images");
  expect_holds(image_refusal(folder.write("a.txt", "text")), "a.txt", "one file", ".h5");
  expect_holds(image_refusal(folder.write("a.h5", "text")), "a.h5", "not a whole HDF5 file");
  const ImageDataset digits = small_digits();
  write_idx_folder(digits, folder.path());
  fs::remove(folder / "t10k-labels-idx1-ubyte");
  expect_holds(image_refusal(folder.path()), "has no t10k-labels");
  write_labels(folder, "t10k-labels-idx1-ubyte", std::vector<uint8_t>(20, 10));
  expect_holds(image_refusal(folder.path()), "test label 10 at index 0", "end at 9");
  replace_file(folder / "t10k-images-idx3-ubyte",
               format_idx({{20, 1, 2}, std::vector<uint8_t>(40)}));
  expect_holds(image_refusal(folder.path()), "28x28", "1x2");
  replace_file(folder / "train-images-idx3-ubyte", format_idx({{0, 28, 28}, {}}));
  write_labels(folder, "train-labels-idx1-ubyte", {});
  expect_holds(image_refusal(folder.path()), "holds no images");
}

TEST(Cases, FC93_CountsOfImagesAndLabelsMustAgree) {
  const TempFolder folder;
  write_idx_folder(small_digits(), folder.path());
  write_labels(folder, "train-labels-idx1-ubyte", std::vector<uint8_t>(10, 1));
  expect_holds(image_refusal(folder.path()), "40 images and 10 labels");
}

TEST(ImageDataset, CommittedSampleLoads) {
  const ImageDataset samples = load_image_dataset(HALFTONE_SOURCE_DIR "/data/samples");
  EXPECT_LE(samples.train.count + samples.test.count, 256);
  EXPECT_EQ(samples.num_classes, 10);
}

TEST(Synthetic, SameSeedSameBytes) {
  EXPECT_EQ(small_digits().train.pixels, small_digits().train.pixels);
  EXPECT_NE(small_digits().train.pixels, synthetic_digits(40, 20, 4).train.pixels);
  EXPECT_EQ(synthetic_digits(80, 20, 3).test.pixels, small_digits().test.pixels);
  EXPECT_EQ(synthetic_text(1000), synthetic_text(1000));
  EXPECT_NE(synthetic_text(1000), synthetic_text(1000, 2));
  EXPECT_THROW(synthetic_digits(9, 1), std::invalid_argument);
}

// The nearest training image names most digits, the nearest class mean far fewer: there is
// something to learn.
TEST(Synthetic, DigitsCanBeLearnedButNotByMeansAlone) {
  const ImageDataset digits = synthetic_digits(2000, 200);
  const auto distance = [&](int64_t test, auto value_of) {
    double sum = 0;
    for (int64_t p = 0; p < 784; ++p) {
      const double difference = digits.test.pixels[size_t(test * 784 + p)] - value_of(p);
      sum += difference * difference;
    }
    return sum;
  };
  std::vector<double> means(10 * 784);
  for (size_t i = 0; i < digits.train.pixels.size(); ++i) {
    means[digits.train.labels[i / 784] * 784 + i % 784] += digits.train.pixels[i] / 200.0;
  }
  int by_neighbour = 0, by_mean = 0;
  for (int64_t test = 0; test < 200; ++test) {
    int64_t neighbour = 0, mean = 0;
    double nearest = 1e30, nearest_mean = 1e30;
    for (int64_t i = 0; i < 2000; ++i) {
      const double d =
          distance(test, [&](int64_t p) { return digits.train.pixels[size_t(i * 784 + p)]; });
      if (d < nearest) {
        nearest = d;
        neighbour = digits.train.labels[size_t(i)];
      }
    }
    for (int64_t c = 0; c < 10; ++c) {
      const double d = distance(test, [&](int64_t p) { return means[size_t(c * 784 + p)]; });
      if (d < nearest_mean) {
        nearest_mean = d;
        mean = c;
      }
    }
    by_neighbour += neighbour == digits.test.labels[size_t(test)];
    by_mean += mean == digits.test.labels[size_t(test)];
  }
  EXPECT_GT(by_neighbour, 170);
  EXPECT_GT(by_mean, 60);
  EXPECT_LT(by_mean, 180);
}

TEST(TokenDataset, TextIsSplitNinetyToTen) {
  const TempFolder folder;
  const TokenDataset data =
      load_token_dataset(folder.write("a.txt", "abcdefghijklmnopqrs").string());
  EXPECT_EQ(data.train.size(), 17u);  // floor(0.9 * 19)
  EXPECT_EQ(data.vocabulary.decode(data.val), "rs");
  EXPECT_EQ(data.vocabulary.size(), 19);
}

TEST(TokenDataset, Hdf5VocabularyMustAscend) {
  const TempFolder folder;
  for (const std::vector<uint32_t>& points :
       {std::vector<uint32_t>{'b', 'a', 0xe9}, std::vector<uint32_t>{'a', 'b', 'b', 0xe9}}) {
    Hdf5File file = Hdf5File::create();
    file.write<uint16_t>("/tokens", {3}, std::vector<uint16_t>{0, 1, 2});
    file.set_integer("/tokens", "vocab", 3);
    file.write<uint32_t>("/vocab", {int64_t(points.size())}, points);
    file.save(folder / "a.h5");
    expect_holds(token_refusal(folder / "a.h5"), "/vocab is not in ascending order");
  }
}

TEST(TokenDataset, Hdf5NpyAndTokenFilesLoad) {
  const TempFolder folder;
  Hdf5File file = Hdf5File::create();
  file.write<uint16_t>("/tokens", {10}, std::vector<uint16_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0});
  file.set_integer("/tokens", "vocab", 3);
  file.save(folder / "ids.h5");
  const TokenDataset ids = load_token_dataset((folder / "ids.h5").string());
  EXPECT_EQ(ids.train.size(), 9u);
  EXPECT_EQ(ids.vocabulary.unit(), TokenUnit::ids);
  EXPECT_EQ(ids.vocabulary.size(), 3);
  file.write<uint32_t>("/vocab", {3}, std::vector<uint32_t>{'a', 'b', 0xe9});
  file.save(folder / "chars.h5");
  const TokenDataset chars = load_token_dataset((folder / "chars.h5").string());
  EXPECT_EQ(chars.vocabulary.decode(chars.train), "ab\u00e9ab\u00e9ab\u00e9");
  file.set_integer("/tokens", "vocab", 2);
  file.save(folder / "bad.h5");
  expect_holds(token_refusal(folder / "bad.h5"), "/vocab has 3", "/tokens@vocab is 2");

  const std::string tokens("\1\0\2\0\3\0\4\0", 8);
  EXPECT_EQ(load_token_dataset(folder.write("a.u16", tokens).string()).train,
            (std::vector<int32_t>{1, 2, 3}));
  const std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (4,)}\n";
  const auto npy = folder.write(
      "a.npy", std::string("\x93NUMPY\1\0", 8) + char(header.size()) + '\0' + header + tokens);
  EXPECT_EQ(load_token_dataset(npy.string()).vocabulary.size(), 5);
}

TEST(TokenDataset, BadFilesAreRefused) {
  const TempFolder folder;
  expect_holds(token_refusal(folder / "none.txt"), "none.txt", "No such file");
  expect_holds(token_refusal(folder.write("empty.txt", "")), "empty.txt", "is empty");
  expect_holds(token_refusal(folder.path()), "is a folder");
  expect_holds(
      token_refusal(folder.write("latin.txt", "caf\xe9")), "0xE9 at offset 3", "--text bytes");
  EXPECT_EQ(load_token_dataset((folder / "latin.txt").string(), {.unit = TokenUnit::bytes})
                .vocabulary.size(),
            256);
  expect_holds(token_refusal(folder.write("a.bin", "some words")), "not a token file");
  Hdf5File file = Hdf5File::create();
  file.write<uint16_t>("/tokens", {2}, std::vector<uint16_t>{0, 9});
  file.save(folder / "a.h5");
  expect_holds(token_refusal(folder / "a.h5"), "/tokens has no attribute vocab");
  file.set_integer("/tokens", "vocab", 9);
  file.save(folder / "a.h5");
  expect_holds(token_refusal(folder / "a.h5"), "token 9 at index 1", "vocabulary of 9");
}

TEST(TokenDataset, SyntheticTextLoads) {
  EXPECT_GT(load_token_dataset("synthetic").train.size(), 100000u);
}

// Prose written for the project, so that a character model has something real to train on in tests.
TEST(TokenDataset, CommittedTextLoads) {
  const TokenDataset sample = load_token_dataset(HALFTONE_SOURCE_DIR "/data/samples/halftone.txt");
  EXPECT_TRUE(sample.notes.empty());
  EXPECT_LE(sample.train.size() + sample.val.size(), 65536u);
  EXPECT_GT(sample.val.size(), 1000u);
}

TEST(KnownData, EnvironmentComesBeforeTheCache) {
  const TempFolder folder;
  const Environment data("HALFTONE_DATA", (folder / "data").string());
  const Environment cache("XDG_CACHE_HOME", (folder / "cache").string());
  write_idx_folder(small_digits(), folder / "cache/halftone/mnist");
  EXPECT_EQ(locate_known_data("mnist"), folder / "cache/halftone/mnist");
  write_idx_folder(small_digits(), folder / "data/mnist");
  EXPECT_EQ(locate_known_data("mnist"), folder / "data/mnist");
  EXPECT_EQ(load_image_dataset("mnist").train.count, 40);
  fs::remove(folder / "data/mnist/t10k-labels-idx1-ubyte");  // not complete any more
  EXPECT_EQ(locate_known_data("mnist"), folder / "cache/halftone/mnist");
  EXPECT_FALSE(is_known_data("./mnist"));
}

// A PATH with the tools of fetch.sh but none that reaches a network.
void link_local_tools(const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* tool : {"bash",
                           "cat",
                           "cut",
                           "env",
                           "gzip",
                           "mkdir",
                           "mktemp",
                           "mv",
                           "rm",
                           "sha256sum",
                           "tar",
                           "timeout"}) {
    for (const char* place : {"/usr/bin", "/bin"}) {
      if (!fs::exists(folder / tool) && fs::exists(fs::path(place) / tool)) {
        fs::create_symlink(fs::path(place) / tool, folder / tool);
      }
    }
  }
}

TEST(KnownData, WithoutANetworkTheMessageSaysWhatToDo) {
  const TempFolder folder;
  link_local_tools(folder / "bin");
  const Environment path("PATH", (folder / "bin").string());
  const Environment data("HALFTONE_DATA", "");
  const Environment cache("XDG_CACHE_HOME", (folder / "cache").string());
  for (const char* name : {"mnist", "shakespeare"}) {
    expect_holds(message_of<FileError>([&] { locate_known_data(name); }),
                 "$HALFTONE_DATA (unset)",
                 "halftone",
                 "exit status 1",
                 "--data synthetic");
  }
}

TEST(KnownData, FetchCopiesOnlyTheRightContent) {
  const TempFolder folder;
  link_local_tools(folder / "bin");
  fs::create_directories(folder / "data/tinyshakespeare");
  folder.write("data/tinyshakespeare/input.txt", "First Citizen: not the whole text");
  const std::string command = "PATH=" + (folder / "bin").string() +
                              " HALFTONE_DATA=" + (folder / "data").string() +
                              " " HALFTONE_SOURCE_DIR "/data/fetch.sh tinyshakespeare " +
                              (folder / "dest").string() + " >/dev/null 2>&1";
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_FALSE(fs::exists(folder / "dest/input.txt"));
  EXPECT_TRUE(fs::is_empty(folder / "dest"));
}

}  // namespace
}  // namespace halftone
