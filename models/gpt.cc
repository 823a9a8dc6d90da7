#include "models/gpt.h"

#include <cmath>

#include "core/check.h"
#include "models/recompute.h"
#include "ops/embedding/embedding.h"
#include "ops/layernorm/layernorm.h"
#include "ops/slice/slice.h"

namespace halftone {
namespace {

constexpr float kDeviation = 0.02f;
constexpr float kEpsilon = 1e-5f;  // of every norm
constexpr int64_t kVocabMultiple = 64;

void check_options(const GptOptions& o) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocabulary", o.vocab},
                                                   {"context", o.context},
                                                   {"layers", o.layers},
                                                   {"heads", o.heads},
                                                   {"width", o.width}};
  for (const auto& [name, size] : sizes) {
    HALFTONE_CHECK(size >= 1, "gpt: ", name, " is ", size, ", expected at least 1");
  }
  HALFTONE_CHECK(
      o.width % o.heads == 0, "gpt: ", o.heads, " heads do not divide a width of ", o.width);
  HALFTONE_CHECK(o.dropout >= 0.0f && o.dropout < 1.0f,
                 "gpt: dropout ",
                 o.dropout,
                 ", expected at least 0 and below 1");
}

}  // namespace

Gpt::Gpt(const GptOptions& options, const LinearContext& context)
    : options_(options),
      recipe_(context.recipe),
      attention_{.heads = options.heads,
                 .precision = resolve_attention(context.recipe),
                 .gemm_kernel = context.gemm_kernel},
      random_(context.random) {
  check_options(options);
  const int64_t padded = (options.vocab + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple;
  const Init normal = Init::normal(kDeviation);
  wte_ = &parameters_.declare("wte.weight", {options.vocab, options.width}, normal, padded);
  wpe_ = &parameters_.declare("wpe.weight", {options.context, options.width}, normal);
  for (int64_t i = 0; i < options.layers; ++i) {
    blocks_.push_back(declare_block(i, context));
  }
  ln_f_ = declare_norm("ln_f");
  head_.emplace(*wte_, "head", context, true);
  parameters_.allocate(context.recipe, context.random.seed, context.device);
  for (LinearLayer* layer : linear_layers()) {
    layer->refresh();
  }
}

Gpt::Norm Gpt::declare_norm(const std::string& path) {
  const Shape shape{options_.width};
  Norm norm{};
  norm.gamma = &parameters_.declare(path + ".weight", shape, Init::ones());
  if (options_.has_bias) {
    norm.beta = &parameters_.declare(path + ".bias", shape, Init::zeros());
  }
  return norm;
}

Gpt::Block Gpt::declare_block(int64_t index, const LinearContext& context) {
  const std::string path = concat("blocks.", index);
  const int64_t width = options_.width;
  const Init normal = Init::normal(kDeviation);
  const Init into_residual = Init::normal(
      static_cast<float>(kDeviation / std::sqrt(2.0 * static_cast<double>(options_.layers))));
  const auto layer = [&](const char* name, int64_t in, int64_t out, const Init& weight) {
    const LinearOptions linear{.in = in,
                               .out = out,
                               .has_bias = options_.has_bias,
                               .weight = weight,
                               .bias = Init::zeros()};
    return LinearLayer(parameters_, path + name, linear, context);
  };
  // Braces: the parameters are declared in this order.
  return Block{path,
               declare_norm(path + ".ln_1"),
               layer(".attn.qkv", width, 3 * width, normal),
               layer(".attn.proj", width, width, into_residual),
               declare_norm(path + ".ln_2"),
               layer(".mlp.fc", width, 4 * width, normal),
               layer(".mlp.proj", 4 * width, width, into_residual)};
}

Tensor Gpt::embed(const Tensor& tokens, bool training) const {
  const Tensor x = embedding(tokens, wte_->weight, wpe_->weight, recipe_.residual);
  return dropout(x, dropout_at("embedding.dropout"), training);
}

Gpt::Join Gpt::run_block(Block& block, const Tensor& x, const Tensor& normalized, bool training) {
  const auto dropped = [&](const Tensor& branch, const char* name) {
    return dropout(branch, dropout_at(block.path + name), training);
  };
  AttentionOptions heads = attention_;
  heads.dropout = dropout_at(block.path + ".attn.dropout");
  heads.training = training;
  heads.path = block.path + ".attn";
  const Tensor attended = attention(block.qkv(normalized), heads);
  const auto [stream, h] = join_and_normalize(
      {x, dropped(block.attention_proj(attended), ".attn.proj.dropout")}, block.ln_2);
  const Tensor hidden = block.fc(h, Activation::gelu);
  return {stream, dropped(block.mlp_proj(hidden), ".mlp.dropout")};
}

ResidualLayernorm Gpt::join_and_normalize(const Join& join, const Norm& norm) const {
  return residual_layernorm(
      join.stream, join.branch, norm.gamma->weight, norm.bias(), kEpsilon, recipe_.act);
}

Tensor Gpt::normalize(const Norm& norm, const Tensor& x) const {
  return layernorm(x, norm.gamma->weight, norm.bias(), kEpsilon, recipe_.act);
}

Tensor Gpt::run_blocks(const Tensor& tokens, bool training) {
  HALFTONE_CHECK(tokens.rank() == 2 && tokens.dtype() == DType::i32 && tokens.size(1) >= 1 &&
                     tokens.size(1) <= options_.context,
                 "gpt: tokens are ",
                 tokens.dtype(),
                 " ",
                 tokens.shape(),
                 ", expected i32 [B, T] with T from 1 to the context, ",
                 options_.context);
  const Tensor x = embed(tokens, training);
  return options_.recompute ? recompute_blocks(x, training) : chain_blocks(x, training);
}

Tensor Gpt::chain_blocks(Tensor x, bool training) {
  Tensor normalized = normalize(blocks_.front().ln_1, x);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Join join = run_block(blocks_[i], x, normalized, training);
    ResidualLayernorm next =
        join_and_normalize(join, i + 1 < blocks_.size() ? blocks_[i + 1].ln_1 : ln_f_);
    x = std::move(next.sum);
    normalized = std::move(next.y);
  }
  return normalized;
}

Tensor Gpt::recompute_blocks(Tensor x, bool training) {
  for (Block& block : blocks_) {
    x = recomputed(x, [this, &block, training](const Tensor& stream) {
      const Join join = run_block(block, stream, normalize(block.ln_1, stream), training);
      return residual_add(join.stream, join.branch);
    });
  }
  return normalize(ln_f_, x);
}

Tensor Gpt::forward(const Tensor& tokens, bool training) {
  return (*head_)(run_blocks(tokens, training));
}

Tensor Gpt::next_logits(const Tensor& tokens) {
  const Tensor x = run_blocks(tokens, false);
  return (*head_)(slice(x, 1, x.size(1) - 1, x.size(1)));
}

std::vector<LinearLayer*> Gpt::linear_layers() {
  std::vector<LinearLayer*> layers;
  for (Block& block : blocks_) {
    layers.insert(layers.end(), {&block.qkv, &block.attention_proj, &block.fc, &block.mlp_proj});
  }
  layers.push_back(&*head_);
  return layers;
}

}  // namespace halftone
