// quantize on a GPU: the CPU's values and scales, bit for bit, for every scaling, rounding and
// storage.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/scales.h"
#include "ops/quantize/quantize.h"
#include "tests/support/bits.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::kGpu;
using testing::same_bits;

// Values whose sizes differ from block to block, and a few that every format has trouble with.
Tensor matrix(int64_t rows, int64_t columns, DType dtype, bool special) {
  Tensor x = testing::random_tensor({rows, columns}, 3);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<double>()[i] *= std::exp2(static_cast<double>((i / 37) % 17) - 8.0);
  }
  if (special && x.numel() > 200) {
    x.data<double>()[11] = std::numeric_limits<double>::infinity();
    x.data<double>()[x.numel() / 2] = std::nan("");
    x.data<double>()[x.numel() - 1] = -0.0;
    for (int64_t i = 128; i < 160; ++i) {
      x.data<double>()[i] = 0.0;
    }
  }
  return testing::as_dtype(x, dtype);
}

void expect_same(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) {
    return;
  }
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  const Tensor host = to_device(actual, Device{});
  const auto bytes = [](const Tensor& t) {
    const auto* first = static_cast<const uint8_t*>(t.raw());
    return std::vector<uint8_t>(first, first + t.bytes());
  };
  EXPECT_TRUE(same_bits(bytes(host), bytes(expected))) << what;
}

void expect_same_on_gpu(const std::string& recipe, const Tensor& x) {
  const LinearPrecision linear = resolve_linear(parse_recipe(recipe), "layer", false);
  for (const OperandPrecision& p : {linear.forward.a, linear.forward.b, linear.dgrad.a}) {
    for (const int k_axis : {0, 1}) {
      const auto run = [&](Device device) {
        const Tensor counters = to_device(Tensor::from<int64_t>({5, 1}, {2}), device);
        AmaxHistory history = make_amax_history(3, device);
        QuantizedMatrix q;
        for (int step = 0; step < 2; ++step) {  // the second by the history, where there is one
          q = quantize(
              to_device(x, device),
              k_axis,
              p,
              {.history = &history, .observe = true, .random = {42, counters}, .purpose = "test"});
          push_amax(history);
        }
        return std::pair(q, history);
      };
      const auto [expected, expected_history] = run({});
      const auto [actual, history] = run(kGpu);
      const std::string what = concat(recipe, " of ", x.dtype(), " ", x.shape(), " along ", k_axis);
      expect_same(actual.values, expected.values, what + ": values");
      expect_same(actual.scales, expected.scales, what + ": scales");
      expect_same(history.amax, expected_history.amax, what + ": history");
      expect_same(history.pushed, expected_history.pushed, what + ": pushed");
      expect_same(history.pending, expected_history.pending, what + ": pending");
      if (serves_both_axes(p)) {
        expect_same(actual.along(1 - k_axis).scales,
                    expected.along(1 - k_axis).scales,
                    what + ": scales of the other axis");
      }
    }
  }
}

constexpr const char* kRecipes[] = {"fp16",
                                    "tf32,round=zero",
                                    "fp8-tensor",
                                    "fp8-delayed",
                                    "fp8-row",
                                    "fp8-block",
                                    "fp8-block,grad=e5m2,scale=e8m0,round=stochastic",
                                    "fp8-block,block=32,scale=e8m0-ceil",
                                    "fp8-block,scale=e8m0-floor,round=zero",
                                    "mxfp8",
                                    "mxfp6",
                                    "mxfp4",
                                    "mxfp4,scale=e8m0-floor",
                                    "mxfp4,round=stochastic",
                                    "nvfp4",
                                    "fp8-block,block=64x64",
                                    "nvfp4,block=32",
                                    "e3m4-block",
                                    "e5m12-row"};

// Neighbours share a scale: once with numbers of their size, once with numbers of every size.
TEST(Quantize, EveryBf16InFourBitsOnAGpuGivesTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const int stride : {1, 0x4e3}) {  // odd: every pattern comes once
    Tensor x = Tensor::empty({64, 1024}, DType::bf16);
    for (int i = 0; i < 0x10000; ++i) {
      x.data<BFloat16>()[i] = BFloat16{static_cast<uint16_t>(i * stride)};
    }
    for (const char* recipe : {"mxfp4", "mxfp4,scale=e8m0-ceil", "mxfp4,scale=e8m0-floor"}) {
      expect_same_on_gpu(recipe, x);
    }
  }
}

TEST(Quantize, OnAGpuGivesTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : kRecipes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                          {0, 7},
                                          {7, 130},
                                          {129, 129},
                                          {130, 37},
                                          {5, 4360},
                                          {257, 640}}) {
        expect_same_on_gpu(recipe, matrix(rows, columns, dtype, false));
        expect_same_on_gpu(recipe, matrix(rows, columns, dtype, true));
      }
    }
  }
}

TEST(SanitizeQuantize, OneShape) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : kRecipes) {
    for (const int64_t columns : {67, 72}) {  // 72 is a multiple of what a thread takes
      expect_same_on_gpu(recipe, matrix(131, columns, DType::bf16, true));
    }
  }
}

}  // namespace
}  // namespace halftone
