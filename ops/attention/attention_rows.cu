// Rows of scores on a GPU. Some lanes of a warp share a row, the fewest that hold it in registers
// between its one reading and its one writing: what a row costs whatever its length is then shared
// by several, and of a causal row packs that its query does not see cost nothing. Rows of more
// than 2048 keys are read again. A lane holds packs of eight elements, whole groups of the row
// tree, so that lanes meet in the tree's last pairs.
#include "ops/attention/attention_rows.h"

#include "core/cuda/reduce.cuh"
#include "core/integer.h"
#include "ops/op.cuh"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

using detail::AttentionRows;

constexpr int kThreads = 256;
constexpr int kPack = kRowGroup;

/// How many lanes share a row and how many packs each holds: the row has at most 8 kLanes kPacks
/// keys, one chunk of the tree. Lane l holds the packs l + kLanes p; pack i is of the tree's group
/// i % 32, of which a lane has kGroups.
template <int kLanes_, int kPacks_>
struct RowLayout {
  static constexpr int kLanes = kLanes_;
  static constexpr int kPacks = kPacks_;
  static constexpr int kGroups = kRowGroups / kLanes < kPacks ? kRowGroups / kLanes : kPacks;
  static_assert(kLanes * kPacks * kPack <= kRowChunk);

  /// First key of a pack of this lane.
  __device__ static int begin(int pack) {
    return (static_cast<int>(threadIdx.x) % kLanes + kLanes * pack) * kPack;
  }

  /// The row tree over term(pack, j) of the packs that start below `count`.
  template <class Term>
  __device__ static float sum(int count, const Term& term) {
    float groups[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float lanes[kPack] = {};
#pragma unroll
      for (int pack = g; pack < kPacks; pack += kGroups) {
        if (begin(pack) < count) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            lanes[j] += term(pack, j);
          }
        }
      }
      groups[g] = group_sum(lanes);
    }
#pragma unroll
    for (int stride = kGroups / 2; stride > 0; stride /= 2) {
#pragma unroll
      for (int g = 0; g < stride; ++g) {
        groups[g] += groups[g + stride];
      }
    }
    float sum = groups[0];
#pragma unroll
    for (int stride = kLanes / 2; stride > 0; stride /= 2) {
      sum += __shfl_xor_sync(device::kFullWarp, sum, stride);
    }
    return sum;
  }

  __device__ static float max_of_lanes(float value) {
#pragma unroll
    for (int stride = kLanes / 2; stride > 0; stride /= 2) {
      value = maximum(value, __shfl_xor_sync(device::kFullWarp, value, stride));
    }
    return value;
  }
};

/// A row, as the lanes that share it see it.
struct Row {
  int64_t index;
  int64_t start;  // of its elements
  int length;     // keys
  int stride;     // elements
  int visible;    // keys seen

  /// A row past the last sees nothing and has no elements.
  __device__ Row(const AttentionRows& rows, int64_t i)
      : index(i),
        start(i * rows.stride),
        length(static_cast<int>(rows.length)),
        stride(i < rows.rows ? static_cast<int>(rows.stride) : 0),
        visible(i < rows.rows ? length : 0) {
    if (rows.causal && i < rows.rows) {
      visible = static_cast<int>(device::split(i, rows.length)) + 1;
    }
  }

  __device__ bool sees(int key) const { return key < visible; }
};

/// Calls body(row) for the rows of these lanes, by whole warps.
template <int kLanes, class Body>
__device__ __forceinline__ void for_rows_of_lanes(const AttentionRows& rows, Body&& body) {
  constexpr int kRowsOfWarp = device::kWarpSize / kLanes;
  constexpr int kRowsOfBlock = kThreads / kLanes;
  const int warp = static_cast<int>(threadIdx.x) / device::kWarpSize;
  const int within = static_cast<int>(threadIdx.x) % device::kWarpSize / kLanes;
  for (int64_t first = int64_t{blockIdx.x} * kRowsOfBlock + warp * kRowsOfWarp; first < rows.rows;
       first += int64_t{gridDim.x} * kRowsOfBlock) {
    body(Row(rows, first + within));
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

// Scale, mask, softmax and dropout. Keys not seen count as -infinity, whose exponential is 0.
template <class Layout, bool kDrops, class T>
__global__ void __launch_bounds__(kThreads) attention_softmax_fwd_kernel(
    AttentionRows rows, float scale, const float* scores, T* probabilities, T* dropped) {
  constexpr int kPacks = Layout::kPacks;
  for_rows_of_lanes<Layout::kLanes>(rows, [&](const Row& row) {
    float e[kPacks][kPack];
    float max = -std::numeric_limits<float>::infinity();
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int begin = Layout::begin(pack);
      if (row.sees(begin)) {
        load_products(scores + row.start, begin, row.length, e[pack]);
      }
    }
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int begin = Layout::begin(pack);
      if (row.sees(begin)) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          e[pack][j] =
              row.sees(begin + j) ? e[pack][j] * scale : -std::numeric_limits<float>::infinity();
          max = maximum(max, e[pack][j]);
        }
      }
    }
    const float shift = softmax_shift(Layout::max_of_lanes(max));
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      if (row.sees(Layout::begin(pack))) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          e[pack][j] = softmax_exp(e[pack][j] - shift);
        }
      }
    }
    const float inverse_sum =
        softmax_inverse(Layout::sum(row.visible, [&](int pack, int j) { return e[pack][j]; }));
    const bool is_number = inverse_sum == inverse_sum;  // else keys not seen would be NaN too
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int begin = Layout::begin(pack);
      T p[kPack] = {};
      float factors[kPack] = {};
      if (row.sees(begin)) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          p[j] = narrow<T>(is_number || row.sees(begin + j) ? e[pack][j] * inverse_sum : 0.0f);
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

// The gradient of those rows. Probabilities of keys not seen are 0.
template <class Layout, bool kDrops, class T>
__global__ void __launch_bounds__(kThreads) attention_softmax_bwd_kernel(AttentionRows rows,
                                                                         float scale,
                                                                         const T* probabilities,
                                                                         const float* gradient,
                                                                         T* dscores,
                                                                         T* dropped) {
  constexpr int kPacks = Layout::kPacks;
  for_rows_of_lanes<Layout::kLanes>(rows, [&](const Row& row) {
    T p[kPacks][kPack] = {};
    float g[kPacks][kPack];
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int begin = Layout::begin(pack);
      if (row.sees(begin)) {
        device::load(probabilities + row.start + begin, p[pack]);
        load_products(gradient + row.start, begin, row.length, g[pack]);
      }
    }
    if constexpr (kDrops) {
#pragma unroll
      for (int pack = 0; pack < kPacks; ++pack) {
        const int begin = Layout::begin(pack);
        float factors[kPack] = {};
        if (row.sees(begin)) {
          Factors(rows, row).of_pack(begin, factors);
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            g[pack][j] *= factors[j];
          }
        }
        if (begin < row.stride) {
          store_dropped(p[pack], factors, dropped + row.start + begin);
        }
      }
    }
    const float dot = Layout::sum(row.visible, [&](int pack, int j) {
      return row.sees(Layout::begin(pack) + j) ? widen(p[pack][j]) * g[pack][j] : 0.0f;
    });
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int begin = Layout::begin(pack);
      T ds[kPack] = {};
      if (row.sees(begin)) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          const float value = widen(p[pack][j]) * (g[pack][j] - dot) * scale;
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
  for_rows_of_lanes<device::kWarpSize>(rows, [&](const Row& row) {
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
  for_rows_of_lanes<device::kWarpSize>(rows, [&](const Row& row) {
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

/// Calls body.operator()<Layout>() with the layout of rows of so many keys, or with void where they
/// are too long for registers.
template <class Body>
void with_layout(int64_t length, Body&& body) {
  const int64_t packs = ceil_div(length, kPack);
  if (packs <= 8) {
    body.template operator()<RowLayout<8, 1>>();
  } else if (packs <= 16) {
    body.template operator()<RowLayout<8, 2>>();
  } else if (packs <= 32) {
    body.template operator()<RowLayout<8, 4>>();
  } else if (packs <= 64) {
    body.template operator()<RowLayout<16, 4>>();
  } else if (packs <= 128) {
    body.template operator()<RowLayout<32, 4>>();
  } else if (packs <= 256) {
    body.template operator()<RowLayout<32, 8>>();
  } else {
    body.template operator()<void>();
  }
}

float scale_of(const AttentionRows& rows) {
  return math::divide(1.0f, math::sqrt(static_cast<float>(rows.head_size)));
}

template <class Layout>
cuda::Grid grid_of(const AttentionRows& rows) {
  int lanes = device::kWarpSize;
  if constexpr (!std::is_void_v<Layout>) {
    lanes = Layout::kLanes;
  }
  return {cuda::blocks_for(rows.rows, kThreads / lanes), kThreads};
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
    with_layout(rows.length, [&]<class Layout>() {
      const auto kernel = [&] {
        if constexpr (std::is_void_v<Layout>) {
          return attention_softmax_fwd_long_kernel<T>;
        } else {
          return rows.drops() ? attention_softmax_fwd_kernel<Layout, true, T>
                              : attention_softmax_fwd_kernel<Layout, false, T>;
        }
      }();
      cuda::launch(kernel,
                   grid_of<Layout>(rows),
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
    with_layout(rows.length, [&]<class Layout>() {
      const auto kernel = [&] {
        if constexpr (std::is_void_v<Layout>) {
          return attention_softmax_bwd_long_kernel<T>;
        } else {
          return rows.drops() ? attention_softmax_bwd_kernel<Layout, true, T>
                              : attention_softmax_bwd_kernel<Layout, false, T>;
        }
      }();
      cuda::launch(kernel,
                   grid_of<Layout>(rows),
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
