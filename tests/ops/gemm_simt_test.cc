// The simt kernel's FP32 products, to the bit: each output is one chain of fused multiply-adds in
// ascending K. The shapes reach its small and its large tile, in every layout, whole and ragged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/check.h"
#include "core/tensor.h"
#include "ops/gemm/gemm.h"
#include "tests/support/devices.h"

namespace halftone {
namespace {

Tensor normal_values(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * columns));
  std::generate(values.begin(), values.end(), [&] { return normal(engine); });
  return Tensor::from(values, {rows, columns});
}

float value_at(const float* x, bool transposed, int64_t stride, int64_t row, int64_t column) {
  return transposed ? x[column * stride + row] : x[row * stride + column];
}

TEST(GemmSimt, EachOutputIsOneChainOfFusedMultiplyAdds) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const Device gpu{DeviceType::cuda, 0};
  struct Size {
    int64_t M, N, K;
  };
  for (const Size& s : {Size{1, 1, 1},
                        Size{31, 40, 17},
                        Size{33, 130, 77},
                        Size{128, 256, 64},
                        Size{1160, 1163, 77},
                        Size{1280, 1152, 64}}) {
    for (int layout = 0; layout < 4; ++layout) {
      SCOPED_TRACE(concat(s.M, " x ", s.N, " x ", s.K, ", layout ", layout));
      const bool a_transposed = layout % 2 == 1;
      const bool b_transposed = layout / 2 == 1;
      const int64_t gap = layout == 0 ? 3 : 0;  // rows that 16-byte loads cannot take
      const int64_t a_stride = (a_transposed ? s.M : s.K) + gap;
      const int64_t b_stride = (b_transposed ? s.K : s.N) + gap;
      const Tensor a = normal_values(a_transposed ? s.K : s.M, a_stride, 1);
      const Tensor b = normal_values(b_transposed ? s.N : s.K, b_stride, 2);
      const Tensor on_a = to_device(a, gpu);
      const Tensor on_b = to_device(b, gpu);
      const Tensor d = Tensor::empty({s.M, s.N}, DType::f32, gpu);
      gemm({.M = s.M,
            .N = s.N,
            .K = s.K,
            .a = {.data = on_a.data<float>(), .transposed = a_transposed, .stride = a_stride},
            .b = {.data = on_b.data<float>(), .transposed = b_transposed, .stride = b_stride},
            .d = d.data<float>(),
            .d_stride = s.N},
           gpu,
           "simt");
      const Tensor found = to_device(d, {});
      int64_t different = 0;
      for (int64_t m = 0; m < s.M; ++m) {
        for (int64_t n = m % 7; n<s.N; n += s.M> 1000 ? 7 : 1) {
          float sum = 0.0f;
          for (int64_t k = 0; k < s.K; ++k) {
            sum = std::fma(value_at(a.data<float>(), a_transposed, a_stride, m, k),
                           value_at(b.data<float>(), b_transposed, b_stride, k, n),
                           sum);
          }
          different += found.data<float>()[m * s.N + n] == sum ? 0 : 1;
        }
      }
      EXPECT_EQ(different, 0);
    }
  }
}

}  // namespace
}  // namespace halftone
