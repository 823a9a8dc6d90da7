// The inside of core/recipe: the names of its values and the table of its keys. Parsing, printing,
// `--precision help` and the checkpoints' recipe_full all walk this one table.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/recipe.h"

namespace halftone::detail {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

inline constexpr Named<Scaling> kScalings[] = {{"none", Scaling::none},
                                               {"tensor", Scaling::tensor},
                                               {"delayed", Scaling::delayed},
                                               {"row", Scaling::row},
                                               {"block", Scaling::block},
                                               {"mx", Scaling::mx},
                                               {"nvfp4", Scaling::nvfp4}};
inline constexpr Named<ScaleRule> kScaleRules[] = {{"fp32", ScaleRule::fp32},
                                                   {"e8m0", ScaleRule::e8m0},
                                                   {"e8m0-ceil", ScaleRule::e8m0_ceil},
                                                   {"e8m0-floor", ScaleRule::e8m0_floor},
                                                   {"e4m3", ScaleRule::e4m3}};
inline constexpr Named<Rounding> kRoundings[] = {
    {"nearest", Rounding::nearest}, {"stochastic", Rounding::stochastic}, {"zero", Rounding::zero}};
inline constexpr Named<Rounding> kUpdates[] = {{"nearest", Rounding::nearest},
                                               {"stochastic", Rounding::stochastic}};
inline constexpr Named<Accumulator> kAccumulators[] = {{"fp32", Accumulator::fp32},
                                                       {"fp16", Accumulator::fp16},
                                                       {"hopper16", Accumulator::hopper16},
                                                       {"ampere16", Accumulator::ampere16},
                                                       {"hopper8", Accumulator::hopper8}};
inline constexpr Named<DType> kStorages[] = {
    {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}};
inline constexpr Named<bool> kMasters[] = {{"fp32", true}, {"none", false}};

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

inline bool is_narrow(const Recipe& r) { return std::min(r.fwd.bits(), r.grad.bits()) <= 8; }
/// A format with FP32's exponent needs no scale, and 2^-126 would be its smallest.
inline bool is_scalable(const Format& f) { return f.exponent_bits < 8; }
inline bool has_blocks(Scaling s) {
  return s == Scaling::block || s == Scaling::mx || s == Scaling::nvfp4;
}

/// `block` as a recipe writes it; "none" where the scaling has no blocks.
std::string print_block(const Recipe& r);

/// One row of the table of keys: how a key is read and printed, and what it is where nobody said:
/// `imply` sets it from the keys above it. Keys without `imply` keep the base's value.
struct Key {
  std::string_view name;
  std::string_view values;
  std::string_view meaning;
  std::function<void(std::string_view, Recipe&)> parse;
  std::function<std::string(const Recipe&)> print;
  std::function<void(Recipe&)> imply;
};
/// In the order in which recipes are printed.
const std::vector<Key>& keys();

}  // namespace halftone::detail
