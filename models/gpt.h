// A GPT-2-style decoder: token and position embeddings, blocks of causal self-attention and MLP
// with layer normalisation in front of each (pre-norm), a last normalisation, and a head that
// shares its weight with the token embedding. Module paths, with nanoGPT's names where they differ:
//   wte, wpe, ln_f, head (lm_head, tied to wte), blocks.N (h.N) with ln_1, attn.qkv (attn.c_attn),
//   attn.proj (attn.c_proj), ln_2, mlp.fc (mlp.c_fc), mlp.proj (mlp.c_proj)
// The vocabulary is padded to a multiple of 64 in memory; padding rows of wte are zero and stay so.
// Source: Radford et al. 2019 (GPT-2); nanoGPT's conventions for initialisation and dropout.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "models/linear_layer.h"
#include "ops/attention/attention.h"
#include "ops/residual_layernorm/residual_layernorm.h"

namespace halftone {

struct GptOptions {
  int64_t vocab = 65;
  int64_t context = 256;  // most tokens that the model sees at once
  int64_t layers = 6;
  int64_t heads = 6;
  int64_t width = 384;
  float dropout = 0.0f;    // behind the embeddings, of attention weights, of both residual branches
  bool has_bias = false;   // in linear layers and norms
  bool recompute = false;  // activations inside blocks are computed again in the backward pass
};

class Gpt {
 public:
  /// Allocates and initialises the parameters from context.random.seed: normal, deviation 0.02, and
  /// 0.02 / sqrt(2 layers) where a branch meets the residual stream; biases zero, norms one.
  /// Throws std::invalid_argument where a size is not positive, heads do not divide the width, or
  /// the dropout is not in [0, 1).
  Gpt(const GptOptions& options, const LinearContext& context);

  /// Logits [B, T, padded_vocab] in the activation dtype, of tokens i32 [B, T], 1 <= T <= context.
  /// `training` turns dropout on. Columns from options().vocab on mean nothing.
  Tensor forward(const Tensor& tokens, bool training);

  /// Logits [B, 1, padded_vocab] of the last position alone, without dropout.
  Tensor next_logits(const Tensor& tokens);

  const GptOptions& options() const { return options_; }
  int64_t padded_vocab() const { return wte_->weight.size(0); }
  DType activation_dtype() const { return recipe_.act; }
  ParameterSet& parameters() { return parameters_; }
  std::vector<LinearLayer*> linear_layers();

 private:
  struct Norm {
    Parameter* gamma;
    Parameter* beta;  // null: none
    Tensor bias() const { return beta == nullptr ? Tensor() : beta->weight; }
  };
  struct Block {
    std::string path;
    Norm ln_1;
    LinearLayer qkv;
    LinearLayer attention_proj;
    Norm ln_2;
    LinearLayer fc;
    LinearLayer mlp_proj;
  };
  struct Join {  // of a branch with the residual stream
    Tensor stream;
    Tensor branch;
  };
  Norm declare_norm(const std::string& path);
  Block declare_block(int64_t index, const LinearContext& context);
  Dropout dropout_at(std::string path) const {
    return {options_.dropout, random_, std::move(path)};
  }
  Tensor normalize(const Norm& norm, const Tensor& x) const;
  Tensor embed(const Tensor& tokens, bool training) const;
  /// The normalised stream behind the last block, [B, T, width].
  Tensor run_blocks(const Tensor& tokens, bool training);
  /// Each block's join and the norm behind it, the next block's first or ln_f, in one pass.
  Tensor chain_blocks(Tensor x, bool training);
  /// The same bits block by block, where only the stream between blocks is kept for backward.
  Tensor recompute_blocks(Tensor x, bool training);
  /// From the stream and its normalisation by ln_1 to the block's last join, not yet made.
  Join run_block(Block& block, const Tensor& x, const Tensor& normalized, bool training);
  ResidualLayernorm join_and_normalize(const Join& join, const Norm& norm) const;

  GptOptions options_;
  Recipe recipe_;
  AttentionOptions attention_;  // but for what differs from block to block
  RandomSource random_;
  ParameterSet parameters_;
  Parameter* wte_ = nullptr;
  Parameter* wpe_ = nullptr;
  std::deque<Block> blocks_;
  Norm ln_f_{};
  std::optional<LinearLayer> head_;
};

}  // namespace halftone
