#include "ops/finite_norm/finite_norm.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/check.h"
#include "core/math.h"
#include "core/parallel.h"
#include "core/reduce.h"

namespace halftone {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;

uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

struct Chunk {
  float sum_of_squares;
  int32_t first_non_finite;  // in the chunk; -1: none
};

Chunk look_at(const float* g, int64_t count, float unscale) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, magnitude(g[i] * unscale));
  }
  Chunk chunk{0.0f, -1};
  if (largest >= kInfinity) {
    int32_t i = 0;
    while (magnitude(g[i] * unscale) < kInfinity) {
      ++i;
    }
    chunk.first_non_finite = i;
  }
  chunk.sum_of_squares = chunk_sum<float>(count, [&](int64_t i) {
    const float u = g[i] * unscale;
    return u * u;
  });
  return chunk;
}

void finite_norm_cpu(const float* g, int64_t n, StepScalars& s) {
  const int64_t num_chunks = (n + kRowChunk - 1) / kRowChunk;
  std::vector<Chunk> chunks(static_cast<size_t>(num_chunks));
  const float unscale = s.unscale;
  constexpr int64_t kGrain = 8;
  parallel_for_range(num_chunks, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t begin = c * kRowChunk;
      chunks[static_cast<size_t>(c)] =
          look_at(g + begin, std::min<int64_t>(n - begin, kRowChunk), unscale);
    }
  });
  s.first_non_finite = -1;
  for (int64_t c = 0; c < num_chunks && s.first_non_finite < 0; ++c) {
    const int32_t index = chunks[static_cast<size_t>(c)].first_non_finite;
    s.first_non_finite = index < 0 ? -1 : c * kRowChunk + index;
  }
  s.grad_norm = math::sqrt(row_sum<float>(
      num_chunks, [&](int64_t c) { return chunks[static_cast<size_t>(c)].sum_of_squares; }));
}

void look(const Tensor& gradients, StepState& state, const detail::AddLoss& loss, bool decides) {
  HALFTONE_CHECK(gradients.dtype() == DType::f32 && gradients.rank() == 1,
                 "finite_norm: the gradients are ",
                 gradients.dtype(),
                 " ",
                 gradients.shape(),
                 ", expected f32 [n]");
  if (gradients.is_cpu()) {
    if (loss.loss_sum != nullptr) {
      loss(state.rules(), state.scalars());
    }
    finite_norm_cpu(gradients.data<float>(), gradients.numel(), state.scalars());
    if (decides) {
      detail::DecideStep{}(state.rules(), state.scalars());
    }
  } else if constexpr (kHasCuda) {
    detail::finite_norm_cuda(gradients, state, loss, decides);
  }
}

}  // namespace

void finite_norm(const Tensor& gradients, StepState& state) { look(gradients, state, {}, false); }

void decide_step(const Tensor& gradients,
                 StepState& state,
                 const Tensor& loss_sum,
                 const Tensor& targets) {
  look(gradients, state, detail::loss_to_add(loss_sum, targets), true);
}

}  // namespace halftone
