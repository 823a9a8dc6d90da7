#include "ops/gather_images/gather_images.h"

#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/support/op_check.h"

namespace halftone {
namespace {

constexpr int64_t kImages = 41;

// Image n has pixels n + 3 i, label 2 n; pixel p stands for p / 8.
ImageBatch gather(int64_t pixels, const std::vector<int32_t>& rows, DType dtype, Device device) {
  std::vector<uint8_t> all;
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < kImages; ++n) {
    labels.push_back(static_cast<int32_t>(2 * n));
    for (int64_t i = 0; i < pixels; ++i) {
      all.push_back(static_cast<uint8_t>(n + 3 * i));
    }
  }
  std::vector<double> values;
  for (int p = 0; p < 256; ++p) {
    values.push_back(p / 8.0);
  }
  return gather_images(to_device(Tensor::from(all, {kImages, pixels}), device),
                       to_device(Tensor::from(labels, {kImages}), device),
                       to_device(Tensor::from(rows, {static_cast<int64_t>(rows.size())}), device),
                       to_device(testing::as_dtype(Tensor::from(values, {256}), dtype), device));
}

TEST(GatherImages, HandComputedValues) {
  const ImageBatch batch = gather(2, {40, 0, 40}, DType::f32, {});
  EXPECT_EQ(batch.x.to_doubles(), (std::vector<double>{5.0, 5.375, 0.0, 0.375, 5.0, 5.375}));
  EXPECT_EQ(batch.targets.to_doubles(), (std::vector<double>{80, 0, 80}));
}

TEST(GatherImages, TheGpuGivesTheCpusBits) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t pixels : {1, 7, 64, 785}) {
      for (const std::vector<int32_t>& rows :
           {std::vector<int32_t>{}, {0}, {40, 3, 3, 17}, {5, 4, 3, 2, 1, 0, 40, 39, 38}}) {
        const ImageBatch expected = gather(pixels, rows, dtype, {});
        const ImageBatch actual = gather(pixels, rows, dtype, testing::kGpu);
        EXPECT_EQ(actual.x.to_doubles(), expected.x.to_doubles()) << pixels;
        EXPECT_EQ(actual.targets.to_doubles(), expected.targets.to_doubles()) << pixels;
      }
    }
  }
}

TEST(GatherImages, WrongShapesThrow) {
  const Tensor pixels = Tensor::zeros({2, 3}, DType::u8);
  const Tensor labels = Tensor::zeros({2}, DType::i32);
  const Tensor rows = Tensor::zeros({1}, DType::i32);
  const Tensor values = Tensor::zeros({256}, DType::f32);
  EXPECT_NO_THROW(gather_images(pixels, labels, rows, values));
  EXPECT_THROW(gather_images(pixels, rows, rows, values), std::invalid_argument);
  EXPECT_THROW(gather_images(labels, labels, rows, values), std::invalid_argument);
  EXPECT_THROW(gather_images(pixels, labels, rows, Tensor::zeros({255}, DType::f32)),
               std::invalid_argument);
}

}  // namespace
}  // namespace halftone
