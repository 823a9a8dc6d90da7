#include "ops/dropout/dropout.h"

#include "ops/op.cuh"

namespace halftone {
namespace {

template <bool accumulate, class S, class T>
struct DropElements {
  CountedDropout dropout;
  S* out;
  const T* in;

  template <int N>
  __device__ void operator()(int64_t i) const {
    static_assert(N == 1 || N % 4 == 0, "whole blocks of draws");
    const RandomStream stream = dropout.draws.now();
    float x[N];
    float values[N];
    load_widened(in + i, x);
    PhiloxBlock draws{};
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (j % 4 == 0) {
        draws = stream.block(static_cast<uint64_t>(i + j) / 4);
      }
      const uint32_t draw = draws.word[N == 1 ? i % 4 : j % 4];
      // A dropped NaN is gone.
      values[j] = draw < dropout.threshold ? 0.0f : x[j] * dropout.scale;
    }
    put_pack<accumulate>(values, out + i);
  }
};

}  // namespace

void detail::dropout_cuda(const CountedDropout& dropout,
                          const Tensor& from,
                          const Tensor& to,
                          bool accumulate) {
  dispatch_gpu(from.dtype(), "dropout", [&]<class T>() {
    with_sink<T>({to, accumulate}, [&]<bool accumulates, class S>(S* out) {
      const T* in = from.data<T>();
      constexpr int kPack = wide_pack_of(std::min(sizeof(S), sizeof(T)));
      launch_elements<kPack>(
          from.numel(), DropElements<accumulates, S, T>{dropout, out, in}, {out, in});
    });
  });
}

}  // namespace halftone
