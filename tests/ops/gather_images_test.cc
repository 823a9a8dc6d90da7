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

// Seven images in batches of three, three micro-batches an iteration: every iteration is an epoch,
// the last batch of each one image.
ImageBatch gather_counted(int64_t iteration, int64_t micro_batch, int64_t size, Device device) {
  const std::vector<int32_t> orders{6, 5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> pixels(7);
  std::vector<int32_t> labels(7);
  for (int i = 0; i < 7; ++i) {
    pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(10 * i);
    labels[static_cast<size_t>(i)] = i;
  }
  std::vector<float> values(256);
  for (int p = 0; p < 256; ++p) {
    values[static_cast<size_t>(p)] = static_cast<float>(p);
  }
  const EpochRows rows{
      .orders = to_device(Tensor::from(orders, {2, 7}), device),
      .counters = to_device(Tensor::from<int64_t>({iteration, micro_batch}, {2}), device),
      .grad_accum = 3,
      .batch = 3};
  return gather_images(to_device(Tensor::from(pixels, {7, 1}), device),
                       to_device(Tensor::from(labels, {7}), device),
                       rows,
                       size,
                       to_device(Tensor::from(values, {256}), device));
}

void expect_counted_rows(Device device) {
  using Values = std::vector<double>;
  const auto targets = [&](int64_t iteration, int64_t micro_batch, int64_t size) {
    const ImageBatch batch = gather_counted(iteration, micro_batch, size, device);
    Values pixels = batch.targets.to_doubles();
    for (double& label : pixels) {
      label *= 10.0;
    }
    EXPECT_EQ(batch.x.to_doubles(), pixels);
    return batch.targets.to_doubles();
  };
  EXPECT_EQ(targets(0, 0, 3), (Values{6, 5, 4}));
  EXPECT_EQ(targets(0, 2, 1), (Values{0}));
  EXPECT_EQ(targets(5, 1, 3), (Values{3, 4, 5}));
  EXPECT_EQ(targets(6, 1, 3), (Values{3, 2, 1}));
  const int64_t far = int64_t{1} << 33;  // past 32 bits
  EXPECT_EQ(targets(far, 0, 3), (Values{6, 5, 4}));
  EXPECT_EQ(targets(far + 1, 2, 1), (Values{6}));
}

TEST(GatherImages, CountersSayWhichRows) { expect_counted_rows({}); }

TEST(GatherImages, CountersOnAGpuSayWhichRows) {
  HALFTONE_SKIP_WITHOUT_GPU();
  expect_counted_rows(testing::kGpu);
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
  EXPECT_THROW(gather_counted(0, 0, 4, {}), std::invalid_argument);
  EXPECT_THROW(gather_images(pixels,
                             labels,
                             {.orders = Tensor::zeros({1, 3}, DType::i32),
                              .counters = Tensor::zeros({2}, DType::i64)},
                             1,
                             values),
               std::invalid_argument);
}

}  // namespace
}  // namespace halftone
