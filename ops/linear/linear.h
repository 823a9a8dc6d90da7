// The linear layer, composed of other ops: quantise the operands as the precision says, multiply,
// and in the backward pass do the same for both gradients. Every linear layer of every model
// reaches the GEMM through here.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/autograd.h"
#include "core/random.h"
#include "core/recipe.h"
#include "ops/gemm/gemm.h"
#include "ops/quantize/quantize.h"

namespace halftone {

enum class LinearOperand : uint8_t { x, w, dy };

/// What one layer carries from step to step beside its parameters: its quantised weights, its amax
/// histories (delayed scaling), where its randomness comes from (stochastic rounding) and which
/// GEMM kernel it is held to. Modules own it.
class LinearState {
 public:
  /// `path` is the layer's module path: it names the layer in errors and seeds its rounding.
  LinearState(std::string path,
              const LinearPrecision& precision,
              RandomSource random,
              std::string gemm_kernel,
              Device device);

  const std::string& path() const { return path_; }
  const LinearPrecision& precision() const { return precision_; }
  const std::string& gemm_kernel() const { return gemm_kernel_; }

  /// Quantises the weights [out, in] anew from their high-precision source: after initialisation,
  /// loading and every update.
  void refresh(const Tensor& weights);
  /// The weights for y = x w^T (K = in) and for dx = dy w (K = out); without values before the
  /// first refresh.
  const QuantizedMatrix& w_forward() const { return w_forward_; }
  const QuantizedMatrix& w_dgrad() const { return w_dgrad_; }

  /// How to quantise one operand; `use` tells the roundings of one operand apart.
  QuantizeOptions options(LinearOperand operand, std::string_view use, bool observe);
  /// Delayed scaling: the step's largest magnitudes join the histories. Called once an optimizer
  /// step, skipped or not.
  void end_step();
  /// Delayed scaling: drops what this step has seen so far, where the weights are replaced by
  /// others.
  void forget_pending();
  /// The histories in the order x, w, dy; empty unless the layer scales by history. For
  /// checkpoints.
  std::vector<AmaxHistory*> histories();

 private:
  std::string path_;
  LinearPrecision precision_;
  RandomSource random_;
  std::string gemm_kernel_;
  std::array<AmaxHistory, 3> histories_;  // by LinearOperand
  QuantizedMatrix w_forward_;
  QuantizedMatrix w_dgrad_;
};

/// y = activation(x w^T + b).
///   x  [..., in]   f32, bf16, f16 (or f64, unrounded: gradient checks)     w  [out, in]  dtype of
///   x b  [out]       dtype of x, or undefined                                y  [..., out] dtype
///   of x
/// The product accumulates in FP32 and is rounded once, after bias and activation. Backward keeps x
/// (or its quantised copy where that serves wgrad too) and, with an activation, what its derivative
/// reads. dw and db accumulate in f32. Without a state the weights are quantised in the call;
/// delayed scaling and stochastic rounding need one. Throws std::invalid_argument on a shape or
/// dtype mismatch.
Tensor linear(const Tensor& x,
              const Tensor& w,
              const Tensor& b,
              const LinearPrecision& precision,
              LinearState* state = nullptr,
              Activation activation = Activation::none);

}  // namespace halftone
