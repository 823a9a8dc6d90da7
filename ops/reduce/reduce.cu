#include "ops/reduce/reduce.h"

#include "ops/op.cuh"
#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

template <class T>
struct Element {
  static constexpr int kPack = device::kVectorBytes / static_cast<int>(sizeof(T));
  using Packed = device::Pack<T, kPack>;
  const T* x;
  int64_t columns;
  bool aligned;

  __device__ float operator()(int64_t row, int64_t column) const {
    return widen(x[row * columns + column]);
  }
  __device__ Packed pack(int64_t row, int64_t column) const {
    return device::load_pack<kPack>(x + row * columns + column);
  }
  __device__ static float widened(const Packed& packed, int j) { return widen(packed.at(j)); }
};

template <class T>
Element<T> element_of(const Tensor& x, int64_t columns) {
  const bool aligned = reinterpret_cast<uintptr_t>(x.raw()) % device::kVectorBytes == 0;
  return {x.data<T>(), columns, aligned};
}

// An element's gradient is the gradient of the output it went to, over the divisor.
template <bool accumulate, class S>
struct RepeatElements {
  const float* dy;
  Over over;
  int64_t columns;
  float divisor;
  S* dx;

  template <int N>
  __device__ void operator()(int64_t i) const {
    float values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      int64_t row = i + j;
      const int64_t column = over == Over::all ? 0 : device::split(row, columns);
      const int64_t output = over == Over::all ? 0 : over == Over::last ? row : column;
      values[j] = math::divide(dy[output], divisor);
    }
    put_pack<accumulate>(values, dx + i);
  }
};

}  // namespace

void detail::reduce_cuda(
    const Tensor& x, Over over, ReduceView view, double divisor, const Tensor& y) {
  dispatch_gpu(x.dtype(), "reduce", [&]<class T>() {
    const Element<T> element = element_of<T>(x, view.columns);
    const auto by = static_cast<float>(divisor);
    float* out = y.data<float>();
    switch (over) {
      case Over::all:
        return device::flat_sum(view.columns, element, by, out, x.device());
      case Over::last:
        return device::row_sums(view.rows, view.columns, element, by, out);
      case Over::leading:
        return device::column_sums(view.rows, view.columns, element, by, out, x.device());
    }
  });
}

void detail::column_sums_cuda(const Tensor& x, ReduceView view, const GradSink& sink) {
  dispatch_gpu(x.dtype(), "sum", [&]<class T>() {
    device::column_sums(view.rows,
                        view.columns,
                        element_of<T>(x, view.columns),
                        1.0f,
                        sink.buffer.data<float>(),
                        x.device(),
                        sink.accumulate);
  });
}

void detail::reduce_gradient_cuda(
    const Tensor& dy, Over over, ReduceView view, double divisor, const GradSink& dx) {
  dispatch_gpu(dx.buffer.dtype(), "reduce", [&]<class S>() {
    S* out = dx.buffer.data<S>();
    const auto run = [&]<bool accumulate>() {
      launch_elements<pack_of(sizeof(S))>(
          dx.buffer.numel(),
          RepeatElements<accumulate, S>{
              dy.data<float>(), over, view.columns, static_cast<float>(divisor), out},
          {out});
    };
    dx.accumulate ? run.template operator()<true>() : run.template operator()<false>();
  });
}

}  // namespace halftone
