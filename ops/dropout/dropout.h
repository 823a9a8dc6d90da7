// Dropout whose mask is a function of (seed, purpose, iteration, micro-batch, element) alone: the
// same on every device and for any number of threads, and never stored.
#pragma once

#include <string>

#include "core/autograd.h"
#include "core/random.h"

namespace halftone {

/// What the ops that drop elements are given.
struct Dropout {
  float p = 0.0f;         // probability that an element is dropped, in [0, 1]
  RandomSource random{};  // needed where p > 0
  std::string purpose;    // the op's module path, as in "blocks.0.mlp.dropout"
};

/// A decided dropout: element i is kept where stream.draw(i) >= threshold, and multiplied by scale.
struct DropoutMask {
  RandomStream stream;
  uint64_t threshold = 0;  // round(p * 2^32): 2^32 drops everything
  float scale = 1.0f;      // 1 / (1 - p) in FP32; 0 where everything is dropped
};

/// The same before the counters are read: what a kernel is given. Without dropout the threshold is
/// 0.
struct CountedDropout {
  CountedStream draws{};
  uint64_t threshold = 0;
  float scale = 1.0f;
};

/// Throws std::invalid_argument unless p is in [0, 1] and, where it is not 0, the counters are i64
/// [2].
CountedDropout count_dropout(std::string_view op, const Dropout& dropout);

/// A counted dropout with the counters as they are now, though they move on: what backward keeps.
struct KeptDropout {
  CountedDropout counted{};
  Tensor counters{};
};

/// Throws as count_dropout does, and unless the counters live on `device`.
KeptDropout keep_dropout(std::string_view op, const Dropout& dropout, Device device);

/// The mask of the iteration and micro-batch that the counters, on the CPU, hold now. Throws as
/// count_dropout does.
DropoutMask make_dropout_mask(std::string_view op, const Dropout& dropout);

/// factors[k] = scale where element first + k is kept, else 0; on the calling thread.
void dropout_factors(const DropoutMask& mask, uint64_t first, int64_t n, float* factors);

/// y = x / (1 - p) where an element is kept, 0 where it is dropped (whatever x is there).
///   x, y  any shape, f32/bf16/f16/f64, the same dtype
/// With p = 0, or where `training` is false, returns x. Backward draws the mask again.
/// Throws std::invalid_argument as count_dropout does.
/// Source: Srivastava et al. 2014, JMLR 15; inverted scaling, so that evaluation is the identity.
Tensor dropout(const Tensor& x, const Dropout& dropout, bool training);

namespace detail {
/// to[i] = from[i] * scale or 0, or += that.
void dropout_cuda(const CountedDropout& dropout,
                  const Tensor& from,
                  const Tensor& to,
                  bool accumulate);
}  // namespace detail

}  // namespace halftone
