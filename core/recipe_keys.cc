#include "core/recipe_keys.h"

#include <charconv>
#include <optional>

namespace halftone::detail {
namespace {

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
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

}  // namespace

std::string print_block(const Recipe& r) {
  return r.block == 0 ? "none" : r.square_block ? concat(r.block, "x", r.block) : concat(r.block);
}

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

}  // namespace halftone::detail
