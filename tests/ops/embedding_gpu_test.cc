// The gradient of an embedding's table on a GPU: rare and frequent tokens, more tokens than owners,
// lists longer than tiles.
#include <gtest/gtest.h>

#include "ops/embedding/embedding.h"
#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

using testing::Tensors;

// Tokens whose frequencies fall as they do in a text.
Tensor skewed_tokens(int64_t n, int64_t vocab) {
  uint64_t state = 1;
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double u = static_cast<double>(state >> 40) * 0x1p-24;
    token = static_cast<int32_t>(u * u * u * u * static_cast<double>(vocab));
  }
  return Tensor::from(tokens, {n});
}

void expect_same(int64_t n, int64_t vocab, int64_t columns) {
  SCOPED_TRACE(concat(n, " tokens of ", vocab, ", ", columns, " columns"));
  const Tensor tokens = skewed_tokens(n, vocab);
  testing::expect_same_on_gpu(
      [&](const Tensors& in) { return embedding(to_device(tokens, in[0].device()), in[0]); },
      {testing::random_tensor({vocab, columns}, 1)});
}

TEST(EmbeddingGpu, GradientHasTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same(0, 3, 5);
  expect_same(1, 1, 1);
  expect_same(64, 1, 3);  // as many places as a token has that is still rare
  expect_same(65, 1, 65);
  expect_same(4096, 2, 64);
  expect_same(4097, 3, 63);
  expect_same(5000, 65, 96);
  expect_same(12001, 513, 33);
  expect_same(20011, 1031, 17);
  expect_same(5003, 50304, 8);
}

// Columns that packs divide and others, batches around panels, positions past the sequence.
void expect_same_with_positions(int64_t batch, int64_t length, int64_t columns) {
  const Tensor tokens = skewed_tokens(batch * length, 37).view({batch, length});
  testing::expect_same_on_gpu(
      [&](const Tensors& in) {
        return embedding(to_device(tokens, in[0].device()), in[0], in[1], DType::f32);
      },
      {testing::random_tensor({37, columns}, 2), testing::random_tensor({length + 2, columns}, 3)});
}

TEST(EmbeddingGpu, PositionsHaveTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const int64_t batch : {0, 1, 7, 16, 17, 127, 128, 129, 300}) {
    expect_same_with_positions(batch, 5, 24);
    expect_same_with_positions(batch, 3, 13);
  }
}

TEST(SanitizeEmbedding, OneShape) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_same_with_positions(140, 3, 24);
  expect_same(4999, 700, 70);
}

}  // namespace
}  // namespace halftone
