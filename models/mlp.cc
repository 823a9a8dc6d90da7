#include "models/mlp.h"

#include <cmath>

#include "core/check.h"
#include "ops/dropout/dropout.h"

namespace halftone {

Mlp::Mlp(const MlpOptions& options, const LinearContext& context)
    : options_(options), act_(context.recipe.act), random_(context.random) {
  HALFTONE_CHECK(options.dropout >= 0.0f && options.dropout < 1.0f,
                 "mlp: dropout ",
                 options.dropout,
                 ", expected at least 0 and below 1");
  std::vector<int64_t> sizes{options.inputs};
  sizes.insert(sizes.end(), options.hidden.begin(), options.hidden.end());
  sizes.push_back(options.outputs);
  for (const int64_t size : sizes) {
    HALFTONE_CHECK(size >= 1, "mlp: a layer of ", size, " units, expected at least 1");
  }
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(sizes[i])));
    const LinearOptions layer{.in = sizes[i],
                              .out = sizes[i + 1],
                              .weight = Init::uniform(bound),
                              .bias = Init::uniform(bound)};
    const bool is_head = i + 2 == sizes.size();
    layers_.emplace_back(parameters_, concat("layers.", i), layer, context, is_head);
  }
  parameters_.allocate(context.recipe, context.random.seed, context.device);
  for (LinearLayer& layer : layers_) {
    layer.refresh();
  }
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = x;
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    h = layers_[i](h, Activation::relu);
    h = dropout(h, {options_.dropout, random_, concat("layers.", i, ".dropout")}, recording());
  }
  return layers_.back()(h);
}

std::vector<LinearLayer*> Mlp::linear_layers() {
  std::vector<LinearLayer*> layers;
  for (LinearLayer& layer : layers_) {
    layers.push_back(&layer);
  }
  return layers;
}

}  // namespace halftone
