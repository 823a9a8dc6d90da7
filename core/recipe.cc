#include "core/recipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>

#include "core/check.h"

namespace halftone {
namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

constexpr Named<Scaling> kScalings[] = {{"none", Scaling::none},
                                        {"tensor", Scaling::tensor},
                                        {"delayed", Scaling::delayed},
                                        {"row", Scaling::row},
                                        {"block", Scaling::block},
                                        {"mx", Scaling::mx},
                                        {"nvfp4", Scaling::nvfp4}};
constexpr Named<ScaleRule> kScaleRules[] = {{"fp32", ScaleRule::fp32},
                                            {"e8m0", ScaleRule::e8m0},
                                            {"e8m0-ceil", ScaleRule::e8m0_ceil},
                                            {"e8m0-floor", ScaleRule::e8m0_floor},
                                            {"e4m3", ScaleRule::e4m3}};
constexpr Named<Rounding> kRoundings[] = {
    {"nearest", Rounding::nearest}, {"stochastic", Rounding::stochastic}, {"zero", Rounding::zero}};
constexpr Named<Rounding> kUpdates[] = {{"nearest", Rounding::nearest},
                                        {"stochastic", Rounding::stochastic}};
constexpr Named<Accumulator> kAccumulators[] = {{"fp32", Accumulator::fp32},
                                                {"fp16", Accumulator::fp16},
                                                {"hopper16", Accumulator::hopper16},
                                                {"ampere16", Accumulator::ampere16},
                                                {"hopper8", Accumulator::hopper8}};
constexpr Named<DType> kStorages[] = {
    {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}};
constexpr Named<bool> kMasters[] = {{"fp32", true}, {"none", false}};

template <class T, size_t N>
T parse_name(std::string_view key, std::string_view text, const Named<T> (&table)[N]) {
  std::string known;
  for (const Named<T>& entry : table) {
    if (entry.name == text) {
      return entry.value;
    }
    known += concat(known.empty() ? "" : ", ", entry.name);
  }
  throw std::invalid_argument(concat("recipe: ", key, "=", text, ": expected one of ", known));
}

template <class T, size_t N>
std::string print_name(T value, const Named<T> (&table)[N]) {
  for (const Named<T>& entry : table) {
    if (entry.value == value) {
      return std::string(entry.name);
    }
  }
  throw std::logic_error("recipe: a value without a name");
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

bool is_narrow(const Recipe& r) { return std::min(r.fwd.bits(), r.grad.bits()) <= 8; }
// A format with FP32's exponent needs no scale, and 2^-126 would be its smallest.
bool is_scalable(const Format& f) { return f.exponent_bits < 8; }
bool has_blocks(Scaling s) {
  return s == Scaling::block || s == Scaling::mx || s == Scaling::nvfp4;
}

void parse_block(std::string_view text, Recipe& r) {
  const size_t x = text.find('x');
  const std::optional<int> n = parse_int(text.substr(0, x));
  const bool known = n == 16 || n == 32 || n == 64 || n == 128;
  HALFTONE_CHECK(known && (x == std::string_view::npos || text.substr(x + 1) == text.substr(0, x)),
                 "recipe: block=",
                 text,
                 ": expected N or NxN with N = 16, 32, 64 or 128");
  r.block = *n;
  r.square_block = x != std::string_view::npos;
}

std::string print_block(const Recipe& r) {
  return r.block == 0 ? "none" : r.square_block ? concat(r.block, "x", r.block) : concat(r.block);
}

// One row of the table of keys: how a key is read and printed, and what it is where nobody said:
// `imply` sets it from the keys above it. Keys without `imply` keep the base's value.
struct Key {
  std::string_view name;
  std::string_view values;
  std::string_view meaning;
  std::function<void(std::string_view, Recipe&)> parse;
  std::function<std::string(const Recipe&)> print;
  std::function<void(Recipe&)> imply;
};

const std::vector<Key>& keys() {
  static const std::vector<Key> table = {
      {"fwd",
       "a format",
       "operands of the forward GEMM",
       [](std::string_view v, Recipe& r) { r.fwd = parse_format(v); },
       [](const Recipe& r) { return to_string(r.fwd); },
       nullptr},
      {"grad",
       "a format",
       "the gradient operand of dgrad and wgrad",
       [](std::string_view v, Recipe& r) { r.grad = parse_format(v); },
       [](const Recipe& r) { return to_string(r.grad); },
       nullptr},
      {"scaling",
       "none, tensor, delayed, row, block, mx, nvfp4",
       "how operands are scaled",
       [](std::string_view v, Recipe& r) { r.scaling = parse_name("scaling", v, kScalings); },
       [](const Recipe& r) { return print_name(r.scaling, kScalings); },
       nullptr},
      {"block",
       "N or NxN, N = 16, 32, 64, 128",
       "elements a scale along K; NxN: weights share it over NxN",
       parse_block,
       print_block,
       [](Recipe& r) {
         r.block = r.scaling == Scaling::block   ? 128
                   : r.scaling == Scaling::mx    ? 32
                   : r.scaling == Scaling::nvfp4 ? 16
                                                 : 0;
         r.square_block = r.scaling == Scaling::block;
       }},
      {"scale",
       "fp32, e8m0, e8m0-ceil, e8m0-floor, e4m3",
       "format and rounding of the scales",
       [](std::string_view v, Recipe& r) { r.scale = parse_name("scale", v, kScaleRules); },
       [](const Recipe& r) { return print_name(r.scale, kScaleRules); },
       [](Recipe& r) {
         r.scale = r.scaling == Scaling::mx      ? ScaleRule::e8m0
                   : r.scaling == Scaling::nvfp4 ? ScaleRule::e4m3
                                                 : ScaleRule::fp32;
       }},
      {"history",
       "N",
       "delayed scaling: length of the amax history",
       [](std::string_view v, Recipe& r) {
         const std::optional<int> n = parse_int(v);
         HALFTONE_CHECK(n.has_value() && *n >= 1 && *n <= 65536,
                        "recipe: history=",
                        v,
                        ": expected 1 to 65536");
         r.history = *n;
       },
       [](const Recipe& r) { return concat(r.history); },
       nullptr},
      {"round",
       "nearest, stochastic, zero",
       "rounding of operands",
       [](std::string_view v, Recipe& r) { r.round = parse_name("round", v, kRoundings); },
       [](const Recipe& r) { return print_name(r.round, kRoundings); },
       nullptr},
      {"acc",
       "fp32, fp16, hopper16, ampere16, hopper8",
       "arithmetic of the accumulator",
       [](std::string_view v, Recipe& r) { r.acc = parse_name("acc", v, kAccumulators); },
       [](const Recipe& r) { return print_name(r.acc, kAccumulators); },
       nullptr},
      {"promote",
       "N (a multiple of 16), none",
       "fp8 and narrower: partial sums go to FP32 every min(N, block) of K",
       [](std::string_view v, Recipe& r) {
         const std::optional<int> n = v == "none" ? std::optional(0) : parse_int(v);
         HALFTONE_CHECK(n.has_value() && *n >= 0 && *n % 16 == 0 && (*n > 0 || v == "none"),
                        "recipe: promote=",
                        v,
                        ": expected a positive multiple of 16, or none");
         r.promote = *n;
       },
       [](const Recipe& r) { return r.promote == 0 ? std::string("none") : concat(r.promote); },
       nullptr},
      {"act",
       "fp32, bf16, fp16",
       "storage of activations between ops",
       [](std::string_view v, Recipe& r) { r.act = parse_name("act", v, kStorages); },
       [](const Recipe& r) { return print_name(r.act, kStorages); },
       nullptr},
      {"residual",
       "fp32, bf16, fp16",
       "storage of the residual stream (default: act)",
       [](std::string_view v, Recipe& r) { r.residual = parse_name("residual", v, kStorages); },
       [](const Recipe& r) { return print_name(r.residual, kStorages); },
       [](Recipe& r) { r.residual = r.act; }},
      {"master",
       "fp32, none",
       "master weights",
       [](std::string_view v, Recipe& r) { r.master = parse_name("master", v, kMasters); },
       [](const Recipe& r) { return print_name(r.master, kMasters); },
       nullptr},
      {"update",
       "nearest, stochastic",
       "rounding of the weight update when master=none",
       [](std::string_view v, Recipe& r) { r.update = parse_name("update", v, kUpdates); },
       [](const Recipe& r) { return print_name(r.update, kUpdates); },
       nullptr},
      {"keep",
       "none, or names joined by +",
       "layers that stay in the activation format; head is the last linear layer",
       [](std::string_view v, Recipe& r) {
         r.keep.clear();
         while (v != "none") {
           const size_t plus = v.find('+');
           HALFTONE_CHECK(plus != 0 && !v.empty(), "recipe: keep has an empty layer name");
           r.keep.emplace_back(v.substr(0, plus));
           if (plus == std::string_view::npos) {
             break;
           }
           v.remove_prefix(plus + 1);
         }
       },
       [](const Recipe& r) {
         std::string text;
         for (const std::string& name : r.keep) {
           text += (text.empty() ? "" : "+") + name;
         }
         return text.empty() ? "none" : text;
       },
       [](Recipe& r) {
         r.keep = is_narrow(r) ? std::vector<std::string>{"head"} : std::vector<std::string>{};
       }},
      {"loss_scale",
       "dynamic, none, VALUE",
       "loss scaling; --loss-scale rewrites this key",
       [](std::string_view v, Recipe& r) { r.loss_scale = parse_loss_scale(v); },
       [](const Recipe& r) { return to_string(r.loss_scale); },
       nullptr},
  };
  return table;
}

struct Preset {
  std::string_view name;
  Format fwd;
  Format grad;
  Scaling scaling;
  DType act;
  bool master = true;
  LossScale loss_scale = {};
};

constexpr LossScale kDynamic{LossScale::Mode::dynamic, 1.0f};
constexpr Preset kPresets[] = {
    {"fp32", kFp32, kFp32, Scaling::none, DType::f32},
    {"tf32", kTf32, kTf32, Scaling::none, DType::f32},
    {"bf16", kBf16, kBf16, Scaling::none, DType::bf16},
    {"fp16", kFp16, kFp16, Scaling::none, DType::f16, true, kDynamic},
    {"bf16-pure", kBf16, kBf16, Scaling::none, DType::bf16, false},
    {"fp8-tensor", kE4M3, kE5M2, Scaling::tensor, DType::bf16},
    {"fp8-delayed", kE4M3, kE5M2, Scaling::delayed, DType::bf16},
    {"fp8-row", kE4M3, kE4M3, Scaling::row, DType::bf16},
    {"fp8-block", kE4M3, kE4M3, Scaling::block, DType::bf16},
    {"mxfp8", kE4M3, kE4M3, Scaling::mx, DType::bf16},
    {"mxfp6", kE2M3, kE2M3, Scaling::mx, DType::bf16},
    {"mxfp4", kE2M1, kE2M1, Scaling::mx, DType::bf16},
    {"nvfp4", kE2M1, kE2M1, Scaling::nvfp4, DType::bf16},
};

// The base alone, without what its keys imply.
Recipe base_recipe(std::string_view base) {
  Recipe r;
  r.base = base;
  for (const Preset& preset : kPresets) {
    if (preset.name == base) {
      r.fwd = preset.fwd;
      r.grad = preset.grad;
      r.scaling = preset.scaling;
      r.act = preset.act;
      r.master = preset.master;
      r.loss_scale = preset.loss_scale;
      return r;
    }
  }
  const size_t dash = base.find('-');
  bool known_scaling = false;
  if (dash != std::string_view::npos) {
    for (const auto& entry : kScalings) {
      known_scaling = known_scaling || entry.name == base.substr(dash + 1);
    }
  }
  if (!known_scaling) {
    std::string names;
    for (const std::string& name : preset_names()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    throw std::invalid_argument(
        concat("recipe: '",
               base,
               "' is not a preset (",
               names,
               ") nor <format>-<scaling>, such as e3m4-block; see --precision help"));
  }
  r.fwd = r.grad = parse_format(base.substr(0, dash));
  r.scaling = parse_name("scaling", base.substr(dash + 1), kScalings);
  r.act = DType::bf16;
  return r;
}

// What keys exclude each other.
void check(const Recipe& r) {
  const std::string scaling = print_name(r.scaling, kScalings);
  const std::string scale = print_name(r.scale, kScaleRules);
  HALFTONE_CHECK(r.scaling == Scaling::none || is_scalable(r.fwd) || is_scalable(r.grad),
                 "recipe: scaling=",
                 scaling,
                 " with ",
                 to_string(r.fwd),
                 " operands: their range is FP32's already; use scaling=none");
  for (const Format& f : {r.fwd, r.grad}) {
    HALFTONE_CHECK(f.exponent_bits < 8 || f.specials == Specials::ieee,
                   "recipe: ",
                   to_string(f),
                   " holds values beyond FP32; use ",
                   to_string(f),
                   "i");
  }
  HALFTONE_CHECK(
      has_blocks(r.scaling) == (r.block != 0),
      "recipe: block=",
      print_block(r),
      " with scaling=",
      scaling,
      has_blocks(r.scaling) ? ": a block length is needed" : ": this scaling has no blocks");
  HALFTONE_CHECK((r.scale == ScaleRule::e4m3) == (r.scaling == Scaling::nvfp4),
                 "recipe: scale=",
                 scale,
                 " with scaling=",
                 scaling,
                 ": nvfp4 has e4m3 scales, and it alone");
  HALFTONE_CHECK(r.scaling != Scaling::mx || r.scale != ScaleRule::fp32,
                 "recipe: scale=fp32 with scaling=mx: MX scales are e8m0, e8m0-ceil or e8m0-floor");
  HALFTONE_CHECK(r.promote == 0 || r.block == 0 ||
                     std::max(r.promote, r.block) % std::min(r.promote, r.block) == 0,
                 "recipe: promote=",
                 r.promote,
                 " with block=",
                 r.block,
                 ": the shorter must divide the longer");
  HALFTONE_CHECK(
      r.master || r.act != DType::f32,
      "recipe: master=none with act=fp32: the weights are FP32 already; use a 16-bit act");
  HALFTONE_CHECK(r.update == Rounding::nearest || !r.master,
                 "recipe: update=stochastic rounds 16-bit weights; it needs master=none");
  if (r.acc != Accumulator::fp32) {
    const std::string acc = print_name(r.acc, kAccumulators);
    for (const Format& f : {r.fwd, r.grad}) {
      const bool fp8 = f == kE4M3 || f == kE5M2;
      const bool in_fp16 = f.exponent_bits <= 5 && f.mantissa_bits <= 10;
      HALFTONE_CHECK(r.acc != Accumulator::hopper8 || fp8,
                     "recipe: acc=hopper8 multiplies e4m3 and e5m2, not ",
                     to_string(f));
      HALFTONE_CHECK(r.acc != Accumulator::fp16 || in_fp16,
                     "recipe: acc=fp16 multiplies fp16 and narrower, not ",
                     to_string(f));
      HALFTONE_CHECK(f.mantissa_bits <= 10,
                     "recipe: acc=",
                     acc,
                     " multiplies operands of at most 10 fraction bits, not ",
                     to_string(f));
    }
  }
}

OperandPrecision operand(const Recipe& r, const Format& format, bool weight) {
  OperandPrecision p{.format = format, .round = r.round};
  if (r.scaling == Scaling::none || !is_scalable(format)) {
    return p;
  }
  p.scaling = r.scaling;
  p.scale = r.scale;
  p.block_k = r.block;
  p.block_mn = weight && r.square_block ? r.block : 1;
  return p;
}

// The accumulator of products whose operands have at most 16 bits or are TF32: the 8-bit unit does
// not take them.
Accumulator wide_accumulator(const Recipe& r, const Format& format) {
  if (format == kFp32) {
    return Accumulator::fp32;
  }
  if (r.acc == Accumulator::hopper8 || (r.acc == Accumulator::fp16 && format != kFp16)) {
    return Accumulator::hopper16;
  }
  return r.acc;
}

GemmPrecision unscaled(const Recipe& r, const Format& format) {
  const OperandPrecision p{.format = format};
  return {.a = p, .b = p, .acc = wide_accumulator(r, format)};
}

}  // namespace

LossScale parse_loss_scale(std::string_view text) {
  if (text == "dynamic") {
    return kDynamic;
  }
  if (text == "none") {
    return {};
  }
  float value = 0.0f;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  HALFTONE_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                     value > 0.0f,
                 "loss scale '",
                 text,
                 "': expected dynamic, none or a finite number above 0");
  return {LossScale::Mode::fixed, value};
}

std::string to_string(const LossScale& scale) {
  switch (scale.mode) {
    case LossScale::Mode::none:
      return "none";
    case LossScale::Mode::dynamic:
      return "dynamic";
    case LossScale::Mode::fixed: {
      char buffer[32];
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, scale.value).ptr;
      return {buffer, end};
    }
  }
  throw std::logic_error("to_string: not a LossScale");
}

Recipe parse_recipe(std::string_view text) {
  const size_t comma = text.find(',');
  Recipe r = base_recipe(text.substr(0, comma));
  std::vector<std::pair<std::string_view, std::string_view>> given;
  while (text.find(',') != std::string_view::npos) {
    text.remove_prefix(text.find(',') + 1);
    const std::string_view part = text.substr(0, text.find(','));
    const size_t equals = part.find('=');
    HALFTONE_CHECK(equals != std::string_view::npos,
                   "recipe: '",
                   part,
                   "' is not key=value; see --precision help");
    const std::string_view name = part.substr(0, equals);
    HALFTONE_CHECK(
        std::any_of(keys().begin(), keys().end(), [&](const Key& k) { return k.name == name; }),
        "recipe: '",
        name,
        "' is not a key; see --precision help");
    HALFTONE_CHECK(
        std::none_of(given.begin(), given.end(), [&](const auto& g) { return g.first == name; }),
        "recipe: '",
        name,
        "' is given twice");
    given.emplace_back(name, part.substr(equals + 1));
  }
  for (const Key& key : keys()) {
    const auto at = std::find_if(
        given.begin(), given.end(), [&](const auto& g) { return g.first == key.name; });
    if (at != given.end()) {
      key.parse(at->second, r);
    } else if (key.imply != nullptr) {
      key.imply(r);
    }
  }
  check(r);
  return r;
}

std::string to_string(const Recipe& recipe) {
  const Recipe base = base_recipe(recipe.base);
  std::string text = recipe.base;
  for (const Key& key : keys()) {
    Recipe expected = recipe;
    if (key.imply != nullptr) {
      key.imply(expected);
    }
    const std::string value = key.print(recipe);
    if (value != key.print(key.imply != nullptr ? expected : base)) {
      text += concat(",", key.name, "=", value);
    }
  }
  return text;
}

std::string to_full_string(const Recipe& recipe) {
  std::string text = recipe.base;
  for (const Key& key : keys()) {
    if (key.name != "block" || recipe.block != 0) {
      text += concat(",", key.name, "=", key.print(recipe));
    }
  }
  return text;
}

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Preset& preset : kPresets) {
      list.emplace_back(preset.name);
    }
    return list;
  }();
  return names;
}

std::string recipe_help() {
  const auto padded = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size() + 1), ' ');
    return text;
  };
  std::string text =
      "A recipe is a preset, or <format>-<scaling> (e3m4-block), then key=value overrides after "
      "commas:\n"
      "  --precision fp8-block,grad=e5m2,scale=e8m0\n\nPresets, each with every key:\n";
  for (const std::string& name : preset_names()) {
    const std::string full = to_full_string(parse_recipe(name));
    text += "  " + padded(name, 14) + full.substr(full.find(',') + 1) + "\n";
  }
  text += "\nKeys:\n";
  for (const Key& key : keys()) {
    text += "  " + padded(std::string(key.name), 12) + padded(std::string(key.values), 46) +
            std::string(key.meaning) + "\n";
  }
  text +=
      "\nFormats: fp32, tf32, bf16, fp16, e4m3, e5m2, e3m2, e2m3, e2m1, or any e<E>m<M>, with "
      "suffix i like IEEE.\n";
  return text;
}

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFp32;
    case DType::bf16:
      return kBf16;
    case DType::f16:
      return kFp16;
    default:
      throw std::invalid_argument(concat("format_of: ", dtype, " stores codes, not values"));
  }
}

LinearPrecision resolve_linear(const Recipe& recipe, std::string_view path, bool is_head) {
  const bool kept =
      std::any_of(recipe.keep.begin(), recipe.keep.end(), [&](const std::string& name) {
        return name == path || (is_head && name == "head");
      });
  LinearPrecision p;
  p.history = recipe.history;
  if (kept) {
    p.forward = p.dgrad = p.wgrad = unscaled(recipe, format_of(recipe.act));
    return p;
  }
  const OperandPrecision x = operand(recipe, recipe.fwd, false);
  const OperandPrecision w = operand(recipe, recipe.fwd, true);
  const OperandPrecision dy = operand(recipe, recipe.grad, false);
  const bool narrow = is_narrow(recipe);
  const Accumulator acc = narrow ? recipe.acc : wide_accumulator(recipe, recipe.fwd);
  const int64_t promote = narrow ? recipe.promote : 0;
  p.forward = {x, w, acc, promote};
  p.dgrad = {dy, w, acc, promote};
  p.wgrad = {dy, x, acc, promote};
  return p;
}

GemmPrecision resolve_attention(const Recipe& recipe) {
  return unscaled(recipe, format_of(recipe.act));
}

}  // namespace halftone
