// What the ops share on a GPU: the loops of ops/op.h as kernels. An element is computed as on the
// CPU, by the same functions and with one rounding on store, so the bits are the same; FP64 stays
// on the CPU, where it serves gradient checks.
#pragma once

#include <initializer_list>

#include "core/cuda/launch.cuh"
#include "core/cuda/vec.cuh"
#include "ops/op.h"

namespace halftone {

/// dispatch_floating without double.
template <class Body>
void dispatch_gpu(DType dtype, std::string_view op, Body&& body) {
  dispatch_floating(dtype, op, [&]<class T>() {
    if constexpr (std::is_same_v<T, double>) {
      throw std::invalid_argument(
          concat(op, ": f64 is for the CPU; on a GPU use f32, bf16 or f16"));
    } else {
      body.template operator()<T>();
    }
  });
}

/// Lets a kernel have so many bytes of dynamic shared memory; false where the device has fewer.
template <class... Parameters>
bool allow_shared_bytes(void (*kernel)(Parameters...), size_t bytes, Device device) {
  int most = 0;
  HALFTONE_CUDA_CHECK(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  if (bytes > static_cast<size_t>(most)) {
    return false;
  }
  HALFTONE_CUDA_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  return true;
}

/// Elements a thread takes at a time where the narrowest of the types is `bytes` wide.
constexpr int pack_of(size_t bytes) { return device::kVectorBytes / static_cast<int>(bytes); }

/// The same where an element costs few instructions and 32 bytes of a narrow type are worth the
/// registers: what a thread does but once is shared among more elements.
constexpr int wide_pack_of(size_t bytes) { return pack_of(bytes) * (bytes <= 2 ? 2 : 1); }

/// Calls run.operator()<N>(i), which handles elements i to i + N - 1: with N = kPack where pointers
/// are aligned, with N = 1 for the rest.
template <int kPack, class Run>
__global__ void elements_kernel(Run run, int64_t n, bool aligned) {
  device::wait_for_inputs();
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  const int64_t packs = aligned ? n / kPack : 0;
  for (int64_t pack = thread; pack < packs; pack += threads) {
    run.template operator()<kPack>(pack * kPack);
  }
  for (int64_t i = packs * kPack + thread; i < n; i += threads) {
    run.template operator()<1>(i);
  }
}

/// Launches it over n elements at `pointers`.
template <int kPack, class Run>
void launch_elements(int64_t n, const Run& run, std::initializer_list<const void*> pointers) {
  const bool aligned = std::all_of(pointers.begin(), pointers.end(), [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % device::kVectorBytes == 0;
  });
  constexpr int kThreads = 256;
  cuda::launch(
      elements_kernel<kPack, Run>,
      {.blocks = cuda::blocks_for(n, kThreads * kPack), .threads = kThreads, .early = true},
      run,
      n,
      aligned);
}

/// Stores N elements of a gradient, or adds to them.
template <bool accumulate, int N, class S>
__device__ __forceinline__ void put_pack(const float (&values)[N], S* to) {
  S stored[N];
  if constexpr (accumulate) {
    device::load(to, stored);
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    put<accumulate>(stored[j], values[j]);
  }
  device::store(stored, to);
}

/// A function with near(x...): its bits where the magnitude of the first argument is below kNear.
template <class F>
concept HasNear = requires {
  F::kNear;
};

/// values[j] = f(first[j], rest[j]...), by near() where all of the pack are.
template <int N, class F, class... Rest>
__device__ __forceinline__ void apply_pack(const F& f,
                                           float (&values)[N],
                                           const float (&first)[N],
                                           const Rest (&... rest)[N]) {
  if constexpr (HasNear<F> && N > 1) {
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      largest = fmaxf(largest, fabsf(first[j]));  // NaN is ignored: near() takes it
    }
    if (largest < F::kNear) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        values[j] = f.near(first[j], rest[j]...);
      }
      return;
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    values[j] = f(first[j], rest[j]...);
  }
}

/// to[j] = from[j], widened.
template <int N, class T>
__device__ __forceinline__ void load_widened(const T* from, float (&to)[N]) {
  T stored[N];
  device::load(from, stored);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    to[j] = widen(stored[j]);
  }
}

/// out[i] = F(in[i]...), or += where it accumulates.
template <bool accumulate, class F, class S, class... T>
struct MapElements;

template <bool accumulate, class F, class S, class T>
struct MapElements<accumulate, F, S, T> {
  F f;
  S* out;
  const T* in;

  template <int N>
  __device__ void operator()(int64_t i) const {
    float a[N];
    float values[N];
    load_widened(in + i, a);
    apply_pack(f, values, a);
    put_pack<accumulate>(values, out + i);
  }
};

template <bool accumulate, class F, class S, class T, class U>
struct MapElements<accumulate, F, S, T, U> {
  F f;
  S* out;
  const T* first;
  const U* second;

  template <int N>
  __device__ void operator()(int64_t i) const {
    float a[N];
    float b[N];
    float values[N];
    load_widened(first + i, a);
    load_widened(second + i, b);
    apply_pack(f, values, a, b);
    put_pack<accumulate>(values, out + i);
  }
};

/// Launches it over n elements.
template <bool accumulate, class F, class S, class... T>
void launch_map(int64_t n, const F& f, S* out, const T*... in) {
  constexpr int kPack = wide_pack_of(std::min({sizeof(S), sizeof(T)...}));
  launch_elements<kPack>(n, MapElements<accumulate, F, S, T...>{f, out, in...}, {out, in...});
}

/// Elements of a dtype known at run time, for ops whose tensors differ in dtype: what ops/rows.h is
/// on the CPU.
struct AnyElements {
  const void* data = nullptr;
  DType dtype = DType::f32;  // f32, bf16 or f16

  __device__ __forceinline__ float operator[](int64_t i) const {
    switch (dtype) {
      case DType::bf16:
        return widen(static_cast<const BFloat16*>(data)[i]);
      case DType::f16:
        return widen(static_cast<const Half*>(data)[i]);
      default:
        return static_cast<const float*>(data)[i];
    }
  }
};

inline AnyElements any_elements(std::string_view op, const Tensor& x) {
  AnyElements elements;
  dispatch_gpu(x.dtype(), op, [&]<class T>() { elements = {x.data<T>(), x.dtype()}; });
  return elements;
}

namespace detail {

/// dy * Slope(saved)
template <class Slope>
struct TimesSlope {
  __device__ float operator()(float saved, float dy) const { return dy * Slope()(saved); }
};
template <HasNear Slope>
struct TimesSlope<Slope> {
  static constexpr float kNear = Slope::kNear;
  __device__ float operator()(float saved, float dy) const { return dy * Slope()(saved); }
  __device__ float near(float saved, float dy) const { return dy * Slope().near(saved); }
};

template <class F>
void map_cuda(const Tensor& x, const Tensor& y) {
  dispatch_gpu(x.dtype(), "map", [&]<class T>() {
    launch_map<false>(x.numel(), F(), y.data<T>(), x.data<T>());
  });
}

template <class Slope>
void map_gradient_cuda(const Tensor& saved, const Tensor& dy, const GradSink& dx) {
  if (!dx) {
    return;
  }
  dispatch_gpu(dy.dtype(), "map_gradient", [&]<class T>() {
    with_sink<T>(dx, [&]<bool accumulate>(auto* out) {
      launch_map<accumulate>(dy.numel(), TimesSlope<Slope>(), out, saved.data<T>(), dy.data<T>());
    });
  });
}

}  // namespace detail
}  // namespace halftone
