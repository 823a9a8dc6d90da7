// From a recipe to the precision of one layer's three products.
#include <algorithm>

#include "core/recipe_keys.h"

namespace halftone {
namespace {

using namespace detail;

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
