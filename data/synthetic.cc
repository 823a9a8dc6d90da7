#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "core/check.h"
#include "core/philox.h"
#include "data/files.h"
#include "data/idx.h"

namespace halftone {
namespace {

constexpr int kSide = 28;

// One draw after the other of one image or paragraph.
class Draws {
 public:
  Draws(uint64_t seed, std::string_view purpose, uint32_t part, uint32_t item)
      : stream_{philox_key(seed, purpose), part, item} {}
  uint32_t bits() {
    if (next_ % 4 == 0) {
      block_ = stream_.block(next_ / 4);
    }
    return block_.word[next_++ % 4];
  }
  /// A multiple of 2^-24 in [low, high].
  float between(float low, float high) { return low + (high - low) * uniform(bits()); }
  /// In [0, count).
  size_t below(size_t count) { return size_t(uint64_t{bits()} * count >> 32); }

 private:
  RandomStream stream_;
  PhiloxBlock block_{};
  uint64_t next_ = 0;
};

struct Point {
  float x, y;
};

// Corners of each digit's stroke in a box of [-1, 1] x [-1, 1], y downwards. A digit of two strokes
// goes back over itself.
using Stroke = std::span<const Point>;
constexpr Point kZero[] = {{0, -1},
                           {.45f, -.8f},
                           {.65f, -.3f},
                           {.65f, .3f},
                           {.45f, .8f},
                           {0, 1},
                           {-.45f, .8f},
                           {-.65f, .3f},
                           {-.65f, -.3f},
                           {-.45f, -.8f},
                           {0, -1}};
constexpr Point kOne[] = {{-.35f, -.6f}, {.1f, -1}, {.1f, 0}, {.1f, 1}};
constexpr Point kTwo[] = {{-.6f, -.6f},
                          {-.3f, -.95f},
                          {.25f, -.95f},
                          {.6f, -.6f},
                          {.5f, -.15f},
                          {0, .4f},
                          {-.6f, .95f},
                          {0, .95f},
                          {.65f, .95f}};
constexpr Point kThree[] = {{-.55f, -.85f},
                            {0, -1},
                            {.5f, -.75f},
                            {.5f, -.35f},
                            {0, -.05f},
                            {.55f, .25f},
                            {.55f, .7f},
                            {.05f, 1},
                            {-.6f, .8f}};
constexpr Point kFour[] = {
    {.3f, 1}, {.3f, 0}, {.3f, -1}, {-.2f, -.35f}, {-.7f, .35f}, {0, .35f}, {.75f, .35f}};
constexpr Point kFive[] = {{.6f, -.95f},
                           {-.45f, -.95f},
                           {-.5f, -.15f},
                           {.1f, -.25f},
                           {.6f, .1f},
                           {.55f, .65f},
                           {.05f, 1},
                           {-.6f, .8f}};
constexpr Point kSix[] = {{.45f, -.95f},
                          {-.1f, -.7f},
                          {-.5f, -.1f},
                          {-.55f, .5f},
                          {-.15f, .95f},
                          {.35f, .9f},
                          {.55f, .5f},
                          {.3f, .1f},
                          {-.2f, .1f},
                          {-.55f, .45f}};
constexpr Point kSeven[] = {
    {-.65f, -.9f}, {0, -.9f}, {.65f, -.9f}, {.3f, -.3f}, {0, .3f}, {-.2f, 1}};
constexpr Point kEight[] = {{0, -.05f},
                            {-.45f, -.4f},
                            {-.35f, -.85f},
                            {0, -1},
                            {.35f, -.85f},
                            {.45f, -.4f},
                            {0, -.05f},
                            {-.55f, .4f},
                            {-.4f, .85f},
                            {0, 1},
                            {.4f, .85f},
                            {.55f, .4f},
                            {0, -.05f}};
constexpr Point kNine[] = {{.55f, -.45f},
                           {.2f, -.1f},
                           {-.3f, -.1f},
                           {-.55f, -.5f},
                           {-.35f, -.9f},
                           {.15f, -.95f},
                           {.55f, -.5f},
                           {.5f, .1f},
                           {.1f, .7f},
                           {-.45f, .95f}};
constexpr std::array<Stroke, 10> kDigits = {
    kZero, kOne, kTwo, kThree, kFour, kFive, kSix, kSeven, kEight, kNine};

// Distance from p to the segment ab.
float distance(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float length2 = std::max(dx * dx + dy * dy, 1e-6f);
  const float along = std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0f, 1.0f);
  const float ex = p.x - (a.x + along * dx), ey = p.y - (a.y + along * dy);
  return std::sqrt(ex * ex + ey * ey);
}

std::vector<Point> place(Stroke stroke, Draws& draws) {
  // Half-angle tangent: cos and sin from divisions alone.
  const float t = draws.between(-0.14f, 0.14f);
  const float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
  const float shear = draws.between(-0.25f, 0.25f);
  const float width = draws.between(5.5f, 9.5f), height = draws.between(7.5f, 10.5f);  // pixels
  const float center_x = draws.between(11, 16), center_y = draws.between(11.5f, 15.5f);
  std::vector<Point> out;
  for (const Point corner : stroke) {
    const float x = (corner.x + draws.between(-0.13f, 0.13f)) * width + shear * corner.y * height;
    const float y = (corner.y + draws.between(-0.13f, 0.13f)) * height;
    out.push_back({center_x + cosine * x - sine * y, center_y + sine * x + cosine * y});
  }
  return out;
}

void draw_digit(int digit, Draws draws, uint8_t* pixels) {
  const std::vector<Point> corners = place(kDigits[size_t(digit)], draws);
  const float radius = draws.between(0.7f, 1.7f);  // half of the stroke's width, pixels
  const float ink = draws.between(170, 255);
  const Point smudge_from{draws.between(0, kSide), draws.between(0, kSide)};
  const Point smudge_to{smudge_from.x + draws.between(-6, 6), smudge_from.y + draws.between(-6, 6)};
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      const Point p{float(column) + 0.5f, float(row) + 0.5f};
      float nearest =
          distance(p, smudge_from, smudge_to) + 0.4f;  // a thinner stroke that means nothing
      for (size_t i = 1; i < corners.size(); ++i) {
        nearest = std::min(nearest, distance(p, corners[i - 1], corners[i]));
      }
      const float coverage =
          std::clamp(radius + 0.5f - nearest, 0.0f, 1.0f);  // one pixel of soft edge
      const float noise = draws.between(-30, 30);
      pixels[row * kSide + column] = uint8_t(std::clamp(ink * coverage + noise, 0.0f, 255.0f));
    }
  }
}

ImageSet draw_set(int64_t count, uint64_t seed, uint32_t part) {
  ImageSet out{count,
               kSide,
               kSide,
               std::vector<uint8_t>(size_t(count) * kSide * kSide),
               std::vector<uint8_t>(size_t(count))};
  for (int64_t i = 0; i < count; ++i) {
    const int digit = int(i % 10);
    out.labels[size_t(i)] = uint8_t(digit);
    draw_digit(digit,
               Draws(seed, "synthetic.digits", part, uint32_t(i)),
               out.pixels.data() + i * kSide * kSide);
  }
  return out;
}

constexpr std::string_view kSubjects[] = {"the printer",
                                          "a careful engraver",
                                          "the old press",
                                          "our apprentice",
                                          "the dot screen",
                                          "a grey wedge",
                                          "the second plate",
                                          "the blue ink",
                                          "every proof",
                                          "the master weight",
                                          "a small gradient"};
constexpr std::string_view kVerbs[] = {"measures",
                                       "rounds",
                                       "covers",
                                       "loses",
                                       "repeats",
                                       "follows",
                                       "carries",
                                       "scales",
                                       "prints",
                                       "forgets",
                                       "halves"};
constexpr std::string_view kAdjectives[] = {
    "fine", "coarse", "wet", "narrow", "pale", "exact", "hidden", "uneven", "patient", "heavy"};
constexpr std::string_view kObjects[] = {"line",
                                         "dot",
                                         "tone",
                                         "shadow",
                                         "sheet of paper",
                                         "margin",
                                         "column of figures",
                                         "edge",
                                         "highlight",
                                         "error",
                                         "sum"};
constexpr std::string_view kPlaces[] = {"near the window",
                                        "on the third page",
                                        "below the fold",
                                        "in the dark room",
                                        "at the end of the day",
                                        "under the lens",
                                        "before the ink dries",
                                        "across the whole sheet"};

template <size_t N>
std::string_view pick(const std::string_view (&words)[N], Draws& draws) {
  return words[draws.below(N)];
}

std::string sentence(Draws& draws) {
  std::string out = concat(pick(kSubjects, draws),
                           " ",
                           pick(kVerbs, draws),
                           " the ",
                           pick(kAdjectives, draws),
                           " ",
                           pick(kObjects, draws));
  if (draws.below(3) == 0) {
    out += concat(" and ", pick(kVerbs, draws), " a ", pick(kObjects, draws));
  }
  if (draws.below(2) == 0) {
    out += concat(draws.below(2) == 0 ? ", " : " ", pick(kPlaces, draws));
  }
  out[0] = char(out[0] - 'a' + 'A');
  constexpr std::string_view kEnds[] = {". ", ". ", ". ", "! ", "? "};  // the next sentence follows
  return out + std::string(pick(kEnds, draws));
}

}  // namespace

ImageDataset synthetic_digits(int64_t num_train, int64_t num_test, uint64_t seed) {
  HALFTONE_CHECK(num_train >= 10 && num_test >= 1,
                 "synthetic_digits: ",
                 num_train,
                 " training and ",
                 num_test,
                 " test images; expected at least 10 and 1");
  ImageDataset out;
  out.source = concat(
      "generated digits (", num_train, " to train on, ", num_test, " to test, seed ", seed, ")");
  out.train = draw_set(num_train, seed, 0);
  out.test = draw_set(num_test, seed, 1);
  out.num_classes = 10;
  return out;
}

std::string synthetic_text(size_t num_bytes, uint64_t seed) {
  std::string out;
  for (uint32_t paragraph = 0; out.size() < num_bytes; ++paragraph) {
    Draws draws(seed, "synthetic.text", 0, paragraph);
    for (size_t left = 2 + draws.below(5); left > 0; --left) {
      out += sentence(draws);
    }
    out.back() = '\n';  // in place of the last space
  }
  return out;
}

void write_idx_folder(const ImageDataset& data, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& part, const ImageSet& set) {
    replace_file(folder / (part + "-images-idx3-ubyte"),
                 format_idx({{set.count, set.height, set.width}, set.pixels}));
    replace_file(folder / (part + "-labels-idx1-ubyte"), format_idx({{set.count}, set.labels}));
  };
  write("train", data.train);
  write("t10k", data.test);
}

}  // namespace halftone
