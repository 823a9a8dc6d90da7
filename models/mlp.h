// A multilayer perceptron: linear layers with a ReLU between them, and dropout behind each ReLU.
// Module paths are `layers.0`, `layers.1`, ...; the last one is the head. Weights and biases start
// uniform in +-1/sqrt(in), as PyTorch's nn.Linear does.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "models/linear_layer.h"

namespace halftone {

struct MlpOptions {
  int64_t inputs = 784;
  std::vector<int64_t> hidden = {256, 256};
  int64_t outputs = 10;
  float dropout = 0.0f;
};

class Mlp {
 public:
  /// Allocates and initialises the parameters from context.random.seed. Throws
  /// std::invalid_argument where a size is not positive, or the dropout not in [0, 1).
  Mlp(const MlpOptions& options, const LinearContext& context);

  /// Logits [B, outputs] of x [B, inputs], both in the recipe's activation dtype. Dropout where
  /// operations are recorded.
  Tensor forward(const Tensor& x);

  const MlpOptions& options() const { return options_; }
  DType activation_dtype() const { return act_; }
  ParameterSet& parameters() { return parameters_; }
  std::vector<LinearLayer*> linear_layers();

 private:
  MlpOptions options_;
  DType act_;
  RandomSource random_;
  ParameterSet parameters_;
  std::deque<LinearLayer> layers_;
};

}  // namespace halftone
