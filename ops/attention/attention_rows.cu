// Rows of scores on a GPU: a warp takes a row, its lanes the packs of eight elements that the row
// tree gives them, so that sums need no exchange but the tree's. Rows of up to 2048 keys stay in
// registers between their one reading and their one writing; longer ones are read again. Of keys
// that a query does not see nothing is read but the rest of a pack.
#include "ops/attention/attention_rows.h"

#include "core/cuda/reduce.cuh"
#include "ops/op.cuh"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

using detail::AttentionRows;

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = kThreads / device::kWarpSize;
constexpr int kPack = kRowGroup;

/// A row, as the lanes of its warp see it.
struct Row {
  int64_t index;
  int64_t start;  // of its elements
  int length;     // keys
  int stride;     // elements
  int visible;    // keys seen

  __device__ Row(const AttentionRows& rows, int64_t i)
      : index(i),
        start(i * rows.stride),
        length(static_cast<int>(rows.length)),
        stride(static_cast<int>(rows.stride)),
        visible(length) {
    if (rows.causal) {
      visible = static_cast<int>(device::split(i, rows.length)) + 1;
    }
  }

  /// First key of this lane's pack in a step.
  __device__ static int begin(int step) {
    return step * kRowLanes + static_cast<int>(threadIdx.x) % device::kWarpSize * kPack;
  }
  __device__ bool sees(int key) const { return key < visible; }
};

/// Calls body(row) for the rows of this warp.
template <class Body>
__device__ __forceinline__ void for_rows_of_warp(const AttentionRows& rows, Body&& body) {
  for (int64_t i = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / device::kWarpSize;
       i < rows.rows;
       i += int64_t{gridDim.x} * kRowsOfBlock) {
    body(Row(rows, i));
  }
}

/// values = x[begin, begin + 8), without what is behind the keys: a product left it unwritten.
__device__ __forceinline__ void load_products(const float* x,
                                              int begin,
                                              int length,
                                              float (&values)[kPack]) {
  if (begin + kPack <= length) {
    device::load(x + begin, values);
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      values[j] = begin + j < length ? x[begin + j] : 0.0f;
    }
  }
}

/// Dropout's factors of a row's keys.
class Factors {
 public:
  __device__ Factors(const AttentionRows& rows, const Row& row)
      : first_(static_cast<uint64_t>((rows.first_row + row.index) * rows.length)),
        threshold_(rows.dropout.threshold),
        scale_(rows.dropout.scale),
        stream_(rows.dropout.draws.now()) {}

  __device__ float at(int key) const { return of_draw(stream_.draw(first_ + key)); }

  /// Those of the keys from `begin` on.
  __device__ __forceinline__ void of_pack(int begin, float (&factors)[kPack]) const {
    PhiloxBlock draws{};
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const uint64_t element = first_ + begin + j;
      if (j == 0 || element % 4 == 0) {
        draws = stream_.block(element / 4);
      }
      const uint32_t low = element % 2 == 0 ? draws.word[0] : draws.word[1];
      const uint32_t high = element % 2 == 0 ? draws.word[2] : draws.word[3];
      factors[j] = of_draw(element % 4 < 2 ? low : high);
    }
  }

 private:
  __device__ float of_draw(uint32_t draw) const { return draw < threshold_ ? 0.0f : scale_; }

  uint64_t first_;
  uint64_t threshold_;
  float scale_;
  RandomStream stream_;
};

/// to[0, 8) = p * factors, rounded.
template <class T>
__device__ __forceinline__ void store_dropped(const T (&p)[kPack],
                                              const float (&factors)[kPack],
                                              T* to) {
  T dropped[kPack];
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    dropped[j] = narrow<T>(widen(p[j]) * factors[j]);
  }
  device::store(dropped, to);
}

// Scale, mask, softmax and dropout of rows of at most 256 kSteps keys.
template <int kSteps, bool kDrops, class T>
__global__ void __launch_bounds__(kThreads) attention_softmax_fwd_kernel(
    AttentionRows rows, float scale, const float* scores, T* probabilities, T* dropped) {
  for_rows_of_warp(rows, [&](const Row& row) {
    float e[kSteps][kPack];
    float max = -std::numeric_limits<float>::infinity();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int begin = Row::begin(step);
      if (row.sees(begin)) {
        load_products(scores + row.start, begin, row.length, e[step]);
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          e[step][j] *= scale;
          max = row.sees(begin + j) ? maximum(max, e[step][j]) : max;
        }
      }
    }
    const float shift = softmax_shift(device::warp_max(max));
    device::RowLanes<float> lanes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int begin = Row::begin(step);
      if (row.sees(begin)) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          e[step][j] = row.sees(begin + j) ? softmax_exp(e[step][j] - shift) : 0.0f;
        }
        lanes.add(e[step]);
      }
    }
    const float inverse_sum = softmax_inverse(lanes.sum());
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int begin = Row::begin(step);
      T p[kPack] = {};
      float factors[kPack] = {};
      if (row.sees(begin)) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          p[j] = narrow<T>(row.sees(begin + j) ? e[step][j] * inverse_sum : 0.0f);
        }
        if constexpr (kDrops) {
          Factors(rows, row).of_pack(begin, factors);
        }
      }
      if (begin < row.stride) {
        device::store(p, probabilities + row.start + begin);
        if constexpr (kDrops) {
          store_dropped(p, factors, dropped + row.start + begin);
        }
      }
    }
  });
}

// The gradient of those rows.
template <int kSteps, bool kDrops, class T>
__global__ void __launch_bounds__(kThreads) attention_softmax_bwd_kernel(AttentionRows rows,
                                                                         float scale,
                                                                         const T* probabilities,
                                                                         const float* gradient,
                                                                         T* dscores,
                                                                         T* dropped) {
  for_rows_of_warp(rows, [&](const Row& row) {
    T p[kSteps][kPack] = {};
    float g[kSteps][kPack];
    device::RowLanes<float> lanes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int begin = Row::begin(step);
      float factors[kPack] = {};
      if (row.sees(begin)) {
        device::load(probabilities + row.start + begin, p[step]);
        load_products(gradient + row.start, begin, row.length, g[step]);
        if constexpr (kDrops) {
          Factors(rows, row).of_pack(begin, factors);
        }
        float terms[kPack];
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          g[step][j] = kDrops ? g[step][j] * factors[j] : g[step][j];
          terms[j] = row.sees(begin + j) ? widen(p[step][j]) * g[step][j] : 0.0f;
        }
        lanes.add(terms);
      }
      if (kDrops && begin < row.stride) {
        store_dropped(p[step], factors, dropped + row.start + begin);
      }
    }
    const float dot = lanes.sum();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int begin = Row::begin(step);
      T ds[kPack] = {};
      if (row.sees(begin)) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          const float value = widen(p[step][j]) * (g[step][j] - dot) * scale;
          ds[j] = narrow<T>(row.sees(begin + j) ? value : 0.0f);
        }
      }
      if (begin < row.stride) {
        device::store(ds, dscores + row.start + begin);
      }
    }
  });
}

// The same for rows of any length, element by element.
template <class T>
__global__ void __launch_bounds__(kThreads) attention_softmax_fwd_long_kernel(
    AttentionRows rows, float scale, const float* scores, T* probabilities, T* dropped) {
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  for_rows_of_warp(rows, [&](const Row& row) {
    const float* s = scores + row.start;
    const float max =
        device::warp_row_max<float>(row.visible, [&](int64_t i) { return s[i] * scale; });
    const float shift = softmax_shift(max);
    const auto e = [&](int64_t i) { return softmax_exp(s[i] * scale - shift); };
    const float inverse_sum = softmax_inverse(device::warp_row_sum<float>(row.visible, e));
    for (int i = lane; i < row.stride; i += device::kWarpSize) {
      const T p = narrow<T>(row.sees(i) ? e(i) * inverse_sum : 0.0f);
      probabilities[row.start + i] = p;
      if (dropped != nullptr) {
        const float factor = row.sees(i) ? Factors(rows, row).at(i) : 0.0f;
        dropped[row.start + i] = narrow<T>(widen(p) * factor);
      }
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_softmax_bwd_long_kernel(AttentionRows rows,
                                      float scale,
                                      const T* probabilities,
                                      const float* gradient,
                                      T* dscores,
                                      T* dropped) {
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  for_rows_of_warp(rows, [&](const Row& row) {
    const T* p = probabilities + row.start;
    const auto g = [&](int64_t i) {
      const float value = gradient[row.start + i];
      return dropped == nullptr ? value : value * Factors(rows, row).at(static_cast<int>(i));
    };
    const float dot =
        device::warp_row_sum<float>(row.visible, [&](int64_t i) { return widen(p[i]) * g(i); });
    for (int i = lane; i < row.stride; i += device::kWarpSize) {
      float ds = 0.0f;
      float kept = 0.0f;
      if (row.sees(i)) {
        ds = widen(p[i]) * (g(i) - dot) * scale;
        kept = dropped == nullptr ? 0.0f : widen(p[i]) * Factors(rows, row).at(i);
      }
      dscores[row.start + i] = narrow<T>(ds);
      if (dropped != nullptr) {
        dropped[row.start + i] = narrow<T>(kept);
      }
    }
  });
}

/// Calls body.operator()<kSteps>() with the steps that a row takes: 1, 2, 4 or 8, or 0 where it is
/// too long for registers.
template <class Body>
void with_steps(int64_t length, Body&& body) {
  const int64_t steps = (length + kRowLanes - 1) / kRowLanes;
  if (steps <= 1) {
    body.template operator()<1>();
  } else if (steps <= 2) {
    body.template operator()<2>();
  } else if (steps <= 4) {
    body.template operator()<4>();
  } else if (steps <= 8) {
    body.template operator()<8>();
  } else {
    body.template operator()<0>();
  }
}

float scale_of(const AttentionRows& rows) {
  return math::divide(1.0f, math::sqrt(static_cast<float>(rows.head_size)));
}

cuda::Grid grid_of(const AttentionRows& rows) {
  return {cuda::blocks_for(rows.rows, kRowsOfBlock), kThreads};
}

template <class T>
T* optional_data(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

void detail::attention_softmax_cuda(const AttentionRows& rows,
                                    const Tensor& scores,
                                    const Tensor& probabilities,
                                    const Tensor& dropped) {
  dispatch_gpu(probabilities.dtype(), "attention", [&]<class T>() {
    with_steps(rows.length, [&]<int kSteps>() {
      const auto kernel = [&] {
        if constexpr (kSteps == 0) {
          return attention_softmax_fwd_long_kernel<T>;
        } else {
          return rows.drops() ? attention_softmax_fwd_kernel<kSteps, true, T>
                              : attention_softmax_fwd_kernel<kSteps, false, T>;
        }
      }();
      cuda::launch(kernel,
                   grid_of(rows),
                   rows,
                   scale_of(rows),
                   scores.data<float>(),
                   probabilities.data<T>(),
                   optional_data<T>(dropped));
    });
  });
}

void detail::attention_softmax_backward_cuda(const AttentionRows& rows,
                                             const Tensor& probabilities,
                                             const Tensor& gradient,
                                             const Tensor& dscores,
                                             const Tensor& dropped) {
  dispatch_gpu(probabilities.dtype(), "attention", [&]<class T>() {
    with_steps(rows.length, [&]<int kSteps>() {
      const auto kernel = [&] {
        if constexpr (kSteps == 0) {
          return attention_softmax_bwd_long_kernel<T>;
        } else {
          return rows.drops() ? attention_softmax_bwd_kernel<kSteps, true, T>
                              : attention_softmax_bwd_kernel<kSteps, false, T>;
        }
      }();
      cuda::launch(kernel,
                   grid_of(rows),
                   rows,
                   scale_of(rows),
                   probabilities.data<T>(),
                   gradient.data<float>(),
                   dscores.data<T>(),
                   optional_data<T>(dropped));
    });
  });
}

}  // namespace halftone
