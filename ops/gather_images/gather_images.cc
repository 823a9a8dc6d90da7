#include "ops/gather_images/gather_images.h"

#include "core/integer.h"
#include "ops/op.h"

namespace halftone {
namespace {

void gather_images_cpu(const Tensor& pixels,
                       const Tensor& labels,
                       const detail::RowFinder& rows,
                       const Tensor& values,
                       const ImageBatch& batch) {
  const int64_t columns = pixels.size(1);
  const uint8_t* from = pixels.data<uint8_t>();
  const int32_t* label = labels.data<int32_t>();
  const int32_t* row = rows();
  int32_t* target = batch.targets.data<int32_t>();
  dispatch_floating(values.dtype(), "gather_images", [&]<class T>() {
    const T* value = values.data<T>();
    T* to = batch.x.data<T>();
    for_rows(batch.x.size(0), columns, [=](int64_t b) {
      const uint8_t* image = from + row[b] * columns;
      std::transform(image, image + columns, to + b * columns, [value](uint8_t pixel) {
        return value[pixel];
      });
      target[b] = label[row[b]];
    });
  });
}

ImageBatch gather(const Tensor& pixels,
                  const Tensor& labels,
                  const detail::RowFinder& rows,
                  int64_t B,
                  const Tensor& values) {
  check_floating("gather_images", "values", values);
  check_tensor("gather_images", "values", values, values.dtype(), {256});
  check_tensor("gather_images", "pixels", pixels, DType::u8, pixels.shape());
  HALFTONE_CHECK(
      pixels.rank() == 2, "gather_images: pixels are ", pixels.shape(), ", expected [N, pixels]");
  check_tensor("gather_images", "labels", labels, DType::i32, {pixels.size(0)});
  const Device device = pixels.device();
  const ImageBatch batch{Tensor::empty({B, pixels.size(1)}, values.dtype(), device),
                         Tensor::empty({B}, DType::i32, device)};
  if (device.is_cpu()) {
    gather_images_cpu(pixels, labels, rows, values, batch);
  } else if constexpr (kHasCuda) {
    detail::gather_images_cuda(pixels, labels, rows, values, batch);
  }
  return batch;
}

}  // namespace

ImageBatch gather_images(const Tensor& pixels,
                         const Tensor& labels,
                         const Tensor& rows,
                         const Tensor& values) {
  check_contiguous("gather_images", "rows", rows);
  check_tensor("gather_images", "rows", rows, DType::i32, {rows.numel()});
  return gather(pixels, labels, {.rows = rows.data<int32_t>()}, rows.numel(), values);
}

ImageBatch gather_images(const Tensor& pixels,
                         const Tensor& labels,
                         const EpochRows& rows,
                         int64_t B,
                         const Tensor& values) {
  check_contiguous("gather_images", "orders", rows.orders);
  check_tensor("gather_images", "counters", rows.counters, DType::i64, {2});
  HALFTONE_CHECK(rows.orders.rank() == 2 && rows.orders.size(0) >= 1 &&
                     rows.orders.size(1) == labels.numel() && rows.grad_accum >= 1 && B >= 0 &&
                     B <= rows.batch,
                 "gather_images: ",
                 B,
                 " rows of batches of ",
                 rows.batch,
                 " out of orders ",
                 rows.orders.shape(),
                 " of ",
                 labels.numel(),
                 " images");
  const detail::RowFinder finder{.rows = rows.orders.data<int32_t>(),
                                 .counters = rows.counters.data<int64_t>(),
                                 .grad_accum = rows.grad_accum,
                                 .batch = rows.batch,
                                 .per_epoch = ceil_div(labels.numel(), rows.batch),
                                 .num_orders = rows.orders.size(0),
                                 .count = labels.numel()};
  return gather(pixels, labels, finder, B, values);
}

}  // namespace halftone
