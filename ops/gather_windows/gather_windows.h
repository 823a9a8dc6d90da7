// Windows of tokens as a decoder trains on them: inputs, and targets one place further, picked from
// a corpus on the device that trains. Drawn windows read the step's counters where they lie, so
// that a captured graph sees other windows in every step.
#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace halftone {

struct TokenBatch {
  Tensor inputs;   // [B, T] i32
  Tensor targets;  // [B, T] i32
};

/// inputs[b, t] = tokens[start(b) + t]; targets[b, t] = tokens[start(b) + t + 1], where start(b) is
/// uniform over the N - T windows of T + 1 tokens: scaled_index of block b of the stream's draws,
/// as its counters stand.
///   tokens  [N]  i32, on the device of the counters; N > T
/// No gradient. Throws std::invalid_argument on a shape or dtype mismatch.
TokenBatch draw_windows(const Tensor& tokens, const CountedStream& stream, int64_t B, int64_t T);

/// The same with start(b) = first + b * stride. Throws where a window ends behind the tokens.
TokenBatch slice_windows(const Tensor& tokens, int64_t first, int64_t stride, int64_t B, int64_t T);

namespace detail {

/// start(b) of draw_windows and of slice_windows.
struct DrawnStart {
  CountedStream stream;
  uint64_t num_windows;

  HALFTONE_HD int64_t operator()(int64_t row) const {
    const PhiloxBlock block = stream.now().block(static_cast<uint64_t>(row));
    return static_cast<int64_t>(scaled_index(block, num_windows));
  }
};
struct EvenStart {
  int64_t first;
  int64_t stride;

  HALFTONE_HD int64_t operator()(int64_t row) const { return first + row * stride; }
};

/// Instantiated for both.
template <class Start>
void gather_windows_cuda(const Tensor& tokens, const Start& start, const TokenBatch& batch);

}  // namespace detail
}  // namespace halftone
