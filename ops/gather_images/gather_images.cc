#include "ops/gather_images/gather_images.h"

#include "ops/op.h"

namespace halftone {
namespace {

void gather_images_cpu(const Tensor& pixels,
                       const Tensor& labels,
                       const Tensor& rows,
                       const Tensor& values,
                       const ImageBatch& batch) {
  const int64_t columns = pixels.size(1);
  const uint8_t* from = pixels.data<uint8_t>();
  const int32_t* label = labels.data<int32_t>();
  const int32_t* row = rows.data<int32_t>();
  int32_t* target = batch.targets.data<int32_t>();
  dispatch_floating(values.dtype(), "gather_images", [&]<class T>() {
    const T* value = values.data<T>();
    T* to = batch.x.data<T>();
    for_rows(rows.numel(), columns, [=](int64_t b) {
      const uint8_t* image = from + row[b] * columns;
      std::transform(image, image + columns, to + b * columns, [value](uint8_t pixel) {
        return value[pixel];
      });
      target[b] = label[row[b]];
    });
  });
}

}  // namespace

ImageBatch gather_images(const Tensor& pixels,
                         const Tensor& labels,
                         const Tensor& rows,
                         const Tensor& values) {
  check_floating("gather_images", "values", values);
  check_tensor("gather_images", "values", values, values.dtype(), {256});
  HALFTONE_CHECK(pixels.rank() == 2 && rows.rank() == 1,
                 "gather_images: pixels are ",
                 pixels.shape(),
                 ", rows ",
                 rows.shape(),
                 "; expected [N, pixels] and [B]");
  check_tensor("gather_images", "pixels", pixels, DType::u8, pixels.shape());
  check_tensor("gather_images", "labels", labels, DType::i32, {pixels.size(0)});
  check_tensor("gather_images", "rows", rows, DType::i32, rows.shape());
  const Device device = pixels.device();
  const ImageBatch batch{Tensor::empty({rows.numel(), pixels.size(1)}, values.dtype(), device),
                         Tensor::empty({rows.numel()}, DType::i32, device)};
  if (device.is_cpu()) {
    gather_images_cpu(pixels, labels, rows, values, batch);
  } else if constexpr (kHasCuda) {
    detail::gather_images_cuda(pixels, labels, rows, values, batch);
  }
  return batch;
}

}  // namespace halftone
