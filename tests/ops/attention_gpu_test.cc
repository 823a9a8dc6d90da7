// Attention on a GPU gives the CPU's bits where both add as Hopper's Tensor Core does, over lengths
// and head sizes around those of tiles, packs and warps; its rows do whatever the products' order.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/integer.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_rows.h"
#include "ops/mul/mul.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::expect_same_on_gpu;
using testing::kGpu;
using testing::random_tensor;
using testing::Tensors;

struct Setting {
  int64_t batch, length, heads, head_size;
  bool causal = true;
  float dropout = 0.0f;
  std::string kernel{};  // of the products on the GPU; empty: chosen
  Shape shape() const { return {batch, length, 3 * heads * head_size}; }
};

Dropout dropout_on(Device device, float p) {
  return {p, {11, to_device(Tensor::from<int64_t>({2, 1}, {2}), device)}, "blocks.0.attn.dropout"};
}

AttentionOptions options_of(const Setting& s, const Tensor& qkv) {
  return {.heads = s.heads,
          .causal = s.causal,
          .dropout = dropout_on(qkv.device(), s.dropout),
          .training = true};
}

// In f32 as TF32: FP32 operands are added in another order on CUDA cores than on the CPU.
testing::TensorFunction attention_of(const Setting& s) {
  return [s](const Tensors& in) {
    AttentionOptions options = options_of(s, in[0]);
    options.precision.a.format = options.precision.b.format =
        in[0].dtype() == DType::f32 ? kTf32 : format_of(in[0].dtype());
    options.precision.acc = Accumulator::hopper16;
    options.gemm_kernel = in[0].is_cpu() ? "" : s.kernel;
    return attention(in[0], options);
  };
}

void expect_same(const Setting& s) {
  SCOPED_TRACE(concat(s.causal ? "causal" : "full", ", heads of ", s.head_size));
  expect_same_on_gpu(attention_of(s), {random_tensor(s.shape(), 1)});
}

TEST(AttentionGpu, HasTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  constexpr int64_t kHeadSizes[] = {8, 16, 32, 64, 128};
  size_t i = 0;
  for (const int64_t length : {1, 7, 63, 64, 65}) {
    for (const int64_t head_size : kHeadSizes) {
      for (const bool causal : {true, false}) {
        expect_same({2, length, head_size > 32 ? 1 : 3, head_size, causal});
      }
    }
  }
  for (const int64_t length : {127, 128, 257}) {
    for (const bool causal : {true, false}) {
      expect_same({2, length, 1, kHeadSizes[i++ % 5], causal});
    }
  }
  expect_same({1, 300, 2, 64});
  expect_same({1, 17, 2, 5});  // rows that no vector and no copy engine reads
  expect_same({3, 9, 1, 1, false});
}

TEST(AttentionGpu, HasTheCpusBitsWithoutElements) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same({0, 5, 2, 8});
  expect_same({2, 0, 2, 8});
}

TEST(AttentionGpu, DropsWhatTheCpuDrops) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const int64_t length : {1, 7, 64, 65, 130}) {
    expect_same({2, length, 2, 16, true, 0.3f});
    expect_same({2, length, 2, 16, false, 0.3f});
  }
}

// The second gradient of qkv is added to the first.
TEST(AttentionGpu, AddsToAGradient) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const Setting s{2, 33, 2, 16};
  const auto both = [&](const Tensors& in) {
    return mul(attention_of(s)(in), attention_of({2, 33, 2, 16, false})(in));
  };
  expect_same_on_gpu(both, {random_tensor(s.shape(), 2)});
}

TEST(AttentionGpu, InFp32IsWithinRounding) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const Setting& s : {Setting{2, 65, 2, 16}, Setting{1, 129, 1, 64, false}}) {
    const auto run = [&](DType dtype, Device device) {
      return testing::run_op(
          [&](const Tensors& in) { return attention(in[0], options_of(s, in[0])); },
          {Tensor::from(testing::as_dtype(random_tensor(s.shape(), 3), DType::f32).to_doubles(),
                        s.shape())},
          Tensor::from(testing::as_dtype(
                           random_tensor({s.batch, s.length, s.heads * s.head_size}, 4), DType::f32)
                           .to_doubles(),
                       {s.batch, s.length, s.heads * s.head_size}),
          dtype,
          false,
          device);
    };
    const testing::OpResult actual = run(DType::f32, kGpu);
    const testing::OpResult expected = run(DType::f64, {});
    // As in attention_test: sums of at most 129 terms up to about 4.5 and 20.
    const double u = testing::unit_roundoff(DType::f32);
    EXPECT_TRUE(testing::all_close(actual[0], expected[0], {.atol = 64 * u * 4.5, .rtol = 2 * u}));
    EXPECT_TRUE(testing::all_close(actual[1], expected[1], {.atol = 256 * u * 20, .rtol = 4 * u}));
  }
}

// ---- Rows alone: long ones, and values that a product hardly gives.

struct RowResults {
  std::vector<double> probabilities, dropped, dscores, dropped_again;
};

RowResults run_rows(const detail::AttentionRows& given, DType dtype, Device device) {
  detail::AttentionRows rows = given;
  const Dropout dropout = dropout_on(device, given.drops() ? 0.2f : 0.0f);
  const KeptDropout kept = keep_dropout("test", dropout, device);
  rows.dropout = kept.counted;
  const Shape shape{rows.rows, rows.stride};
  Tensor scores = testing::as_dtype(random_tensor(shape, 5, 9.0), DType::f32);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {-kInfinity, kInfinity, std::nanf(""), 1e38f};
  for (int64_t row = 0; row < rows.rows; ++row) {
    float* s = scores.data<float>() + row * rows.stride;
    if (row % 7 == 3) {
      std::fill_n(s, rows.length, -kInfinity);
    } else if (row % 7 == 5) {
      s[row % rows.length] = special[row / 7 % 4];
    }
    std::fill(s + rows.length, s + rows.stride, std::nanf(""));  // no keys
  }
  const auto empty = [&] { return Tensor::empty(shape, dtype, device); };
  const Tensor p = empty(), dropped = rows.drops() ? empty() : Tensor();
  const Tensor ds = empty(), dropped_again = rows.drops() ? empty() : Tensor();
  const Tensor s = to_device(scores, device);
  const Tensor copied = empty_like(s);
  copy(s, copied);
  const Tensor g = to_device(testing::as_dtype(random_tensor(shape, 6), DType::f32), device);
  if (device.is_cpu()) {
    detail::attention_softmax_cpu(rows, copied, p, dropped);
    detail::attention_softmax_backward_cpu(rows, p, g, ds, dropped_again);
  } else if constexpr (kHasCuda) {
    detail::attention_softmax_cuda(rows, copied, p, dropped);
    detail::attention_softmax_backward_cuda(rows, p, g, ds, dropped_again);
  }
  const auto values = [](const Tensor& x) {
    return x.defined() ? testing::with_one_nan(x.to_doubles()) : std::vector<double>();
  };
  return {values(p), values(dropped), values(ds), values(dropped_again)};
}

// All queries where they differ.
void expect_same_rows(int64_t length, bool causal, bool drops, DType dtype) {
  SCOPED_TRACE(concat(length, causal ? " causal" : "", drops ? " dropped " : " ", dtype));
  const detail::AttentionRows rows{.rows = causal ? length + 3 : 29,
                                   .length = length,
                                   .stride = round_up(length, 8),
                                   .head_size = 24,
                                   .first_row = 3 * length,
                                   .causal = causal,
                                   .dropout = {.threshold = drops ? 1u : 0u}};
  const RowResults expected = run_rows(rows, dtype, {});
  const RowResults actual = run_rows(rows, dtype, kGpu);
  EXPECT_TRUE(testing::same_bits(actual.probabilities, expected.probabilities));
  EXPECT_TRUE(testing::same_bits(actual.dropped, expected.dropped));
  EXPECT_TRUE(testing::same_bits(actual.dscores, expected.dscores));
  EXPECT_TRUE(testing::same_bits(actual.dropped_again, expected.dropped_again));
}

TEST(AttentionGpu, RowsHaveTheCpusBitsAtEveryLength) {
  HALFTONE_SKIP_WITHOUT_GPU();
  int i = 0;
  for (const int64_t length :
       {1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 511, 513, 1023, 1025, 2048, 2049}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      expect_same_rows(length, true, false, dtype);
      expect_same_rows(length, i % 2 == 0, true, dtype);
      expect_same_rows(length, false, false, dtype);
      ++i;
    }
  }
  expect_same_rows(4099, true, false, DType::bf16);
}

// One shape a kernel, for compute-sanitizer.
TEST(SanitizeAttention, OneShape) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same({2, 67, 2, 16, true, 0.3f});
  expect_same({2, 67, 2, 5, false});
}

// Without the copy engine, whose writes not all tools see.
TEST(SanitizeAttention, OnThreads) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same({2, 67, 2, 16, true, 0.3f, "mma"});
  for (const int64_t length : {70, 300, 700, 1100, 2060}) {
    expect_same_rows(length, true, length % 20 == 0, DType::bf16);
  }
}

}  // namespace
}  // namespace halftone
