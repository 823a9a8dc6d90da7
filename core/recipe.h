// A Recipe says every precision choice of a run. It is a value, parsed from and printed as text, so
// that one binary sweeps them:
//   RECIPE = BASE[,key=value]...      BASE = a preset, or <format>-<scaling> (e3m4-block)
// parse_recipe(to_string(r)) == r. The trainer resolves a recipe once into a LinearPrecision for
// each linear layer; no operation reads a global precision. `recipe_help()` prints the tables of
// keys and presets that README explains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/formats.h"
#include "core/scales.h"

namespace halftone {

/// How operands share scales. block: 1xN along K (NxN for weights if the block is square); mx: 1x32
/// with E8M0 scales; nvfp4: 1x16 with E4M3 scales under one FP32 scale of the tensor; row: one
/// scale for each index of the dimension that is kept.
enum class Scaling : uint8_t { none, tensor, delayed, row, block, mx, nvfp4 };

/// Arithmetic of a GEMM's accumulator. fp32 is the device's own (Eigen on the CPU, the Tensor Core
/// on a GPU); the others name a Tensor Core's arithmetic exactly (ops/gemm/tensor_core.h).
enum class Accumulator : uint8_t { fp32, fp16, hopper16, ampere16, hopper8 };

struct LossScale {
  enum class Mode : uint8_t { none, dynamic, fixed };
  Mode mode = Mode::none;
  float value = 1.0f;  // of `fixed`
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

struct Recipe {
  std::string base = "fp32";
  Format fwd = kFp32;
  Format grad = kFp32;
  Scaling scaling = Scaling::none;
  int block = 0;              // elements a scale, along K; 0 where the scaling has no blocks
  bool square_block = false;  // weights share a scale over block x block
  ScaleRule scale = ScaleRule::fp32;
  int history = 16;
  Rounding round = Rounding::nearest;
  Accumulator acc = Accumulator::fp32;
  int promote = 128;  // 0: none
  DType act = DType::f32;
  DType residual = DType::f32;
  bool master = true;
  Rounding update = Rounding::nearest;
  std::vector<std::string> keep;
  LossScale loss_scale;

  friend bool operator==(const Recipe&, const Recipe&) = default;
};

/// Throws std::invalid_argument that names the part not understood, what is expected there, or why
/// keys exclude each other.
Recipe parse_recipe(std::string_view text);
/// The base, then the keys that differ from what the base implies, in the order of the table.
std::string to_string(const Recipe& recipe);
/// The base, then every key.
std::string to_full_string(const Recipe& recipe);
LossScale parse_loss_scale(std::string_view text);
std::string to_string(const LossScale& scale);
/// The tables of keys and presets, for `--precision help`.
std::string recipe_help();
const std::vector<std::string>& preset_names();

/// How one GEMM operand is made from a high-precision tensor.
struct OperandPrecision {
  Format format = kFp32;
  Scaling scaling = Scaling::none;
  int64_t block_mn =
      1;  // elements a scale along the dimension that is kept, for block, mx and nvfp4
  int64_t block_k = 0;  // and along K
  ScaleRule scale = ScaleRule::fp32;
  Rounding round = Rounding::nearest;
  friend bool operator==(const OperandPrecision&, const OperandPrecision&) = default;
};

struct GemmPrecision {
  OperandPrecision a;
  OperandPrecision b;
  Accumulator acc = Accumulator::fp32;
  int64_t promote = 0;  // 0: partial sums stay in the accumulator
  friend bool operator==(const GemmPrecision&, const GemmPrecision&) = default;
};

/// forward: x [tokens, in] * w^T; dgrad: dy [tokens, out] * w; wgrad: dy^T [out, tokens] * x
/// [tokens, in].
struct LinearPrecision {
  GemmPrecision forward;
  GemmPrecision dgrad;
  GemmPrecision wgrad;
  int history = 16;
  friend bool operator==(const LinearPrecision&, const LinearPrecision&) = default;
};

/// The precision of the layer at `path`; `is_head` says that it is the model's last linear layer,
/// which `keep=head` names too.
LinearPrecision resolve_linear(const Recipe& recipe, std::string_view path, bool is_head);
/// The products inside an attention block: operands in the activation format, unscaled.
GemmPrecision resolve_attention(const Recipe& recipe);
/// The number format of a 16-bit or FP32 storage type.
Format format_of(DType dtype);

}  // namespace halftone
