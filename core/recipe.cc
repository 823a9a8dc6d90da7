#include "core/recipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/recipe_keys.h"

namespace halftone {
namespace {

using namespace detail;

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

}  // namespace halftone
