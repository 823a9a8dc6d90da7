#include "models/linear_layer.h"

namespace halftone {
namespace {

LinearState make_state(const std::string& path, const LinearContext& context, bool is_head) {
  return {path,
          resolve_linear(context.recipe, path, is_head),
          context.random,
          context.gemm_kernel,
          context.device};
}

}  // namespace

LinearLayer::LinearLayer(ParameterSet& parameters,
                         const std::string& path,
                         const LinearOptions& options,
                         const LinearContext& context,
                         bool is_head)
    : weight_(&parameters.declare(path + ".weight", {options.out, options.in}, options.weight)),
      bias_(options.has_bias ? &parameters.declare(path + ".bias", {options.out}, options.bias)
                             : nullptr),
      state_(make_state(path, context, is_head)) {}

LinearLayer::LinearLayer(Parameter& weight,
                         const std::string& path,
                         const LinearContext& context,
                         bool is_head)
    : weight_(&weight), bias_(nullptr), state_(make_state(path, context, is_head)) {}

Tensor LinearLayer::operator()(const Tensor& x, Activation activation) {
  const Tensor bias = bias_ == nullptr ? Tensor() : bias_->weight;
  return linear(x, weight_->weight, bias, state_.precision(), &state_, activation);
}

void LinearLayer::refresh() {
  const OperandPrecision& operand = state_.precision().forward.b;
  const bool as_stored = operand.scaling == Scaling::none && operand.round == Rounding::nearest &&
                         operand.format == format_of(weight_->weight.dtype());
  state_.refresh((as_stored ? weight_->weight : weight_->source).detach());
}

}  // namespace halftone
