// Attention as a flash kernel computes it, replayed on the CPU in plain loops: keys in tiles, a
// running maximum and sum, the output rescaled as the maximum grows. It is what the tiled kernels
// are compared with; training on the CPU uses attention.h. No gradient.
#pragma once

#include "core/tensor.h"

namespace halftone {

struct OnlineAttention {
  Tensor y;            // [B, T, C], dtype of qkv
  Tensor log_sum_exp;  // [B, heads, T] f32 (f64 for f64): of the scaled scores; -inf if all are
};

/// softmax(q k^T / sqrt(d)) v for qkv as in attention.h, `key_tile` keys at a time. Probabilities
/// are rounded to the dtype of qkv before they are divided by their sum, which is taken of the
/// unrounded ones. Products are added in ascending order by fma. Throws std::invalid_argument where
/// shape, heads or tile do not fit. Source: Dao et al. 2022, arXiv:2205.14135, algorithm 1; Milakov
/// & Gimelshein 2018, arXiv:1805.02867.
OnlineAttention online_attention(const Tensor& qkv,
                                 int64_t heads,
                                 bool causal,
                                 int64_t key_tile = 64);

}  // namespace halftone
