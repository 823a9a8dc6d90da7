// A linear layer as models hold it: its weight and bias in the model's parameters, its precision,
// and the state that ops/linear carries from step to step. Every linear layer of every model is one
// of these.
#pragma once

#include <cstdint>
#include <string>

#include "models/module.h"
#include "ops/linear/linear.h"

namespace halftone {

struct LinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  bool has_bias = true;
  Init weight;
  Init bias;
};

/// What all linear layers of a model share.
struct LinearContext {
  Recipe recipe;
  RandomSource random;
  std::string gemm_kernel;  // empty: chosen for each product
  Device device;
};

class LinearLayer {
 public:
  /// Declares `path`.weight [out, in] and `path`.bias [out]. `is_head`: the model's last one.
  LinearLayer(ParameterSet& parameters,
              const std::string& path,
              const LinearOptions& options,
              const LinearContext& context,
              bool is_head = false);
  /// A layer without bias whose weight [out, in] is declared elsewhere (a tied embedding).
  LinearLayer(Parameter& weight,
              const std::string& path,
              const LinearContext& context,
              bool is_head = false);

  /// activation(x w^T + b): x [..., in] in the activation dtype.
  Tensor operator()(const Tensor& x, Activation activation = Activation::none);

  /// Quantises the weights anew, from the FP32 ones where the operand is not the weights as stored,
  /// rounded to nearest: after allocation, loading, and every step, behind LinearState::end_step.
  void refresh();

  const Parameter& weight() const { return *weight_; }
  LinearState& state() { return state_; }
  const LinearPrecision& precision() const { return state_.precision(); }
  const std::string& path() const { return state_.path(); }

 private:
  Parameter* weight_;
  Parameter* bias_;  // null: none
  LinearState state_;
};

}  // namespace halftone
