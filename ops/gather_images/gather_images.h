// A batch of images and labels, picked from a data set on the device that trains.
#pragma once

#include "core/tensor.h"

namespace halftone {

struct ImageBatch {
  Tensor x;        // [B, pixels]
  Tensor targets;  // [B] i32
};

/// x[b, i] = values[pixels[rows[b], i]]; targets[b] = labels[rows[b]].
///   pixels  [N, pixels]  u8        labels  [N]  i32       rows  [B]  i32 in [0, N)
///   values  [256]  the dtype of x: f32/bf16/f16/f64
/// All on one device. No gradient. Throws std::invalid_argument on a shape or dtype mismatch.
ImageBatch gather_images(const Tensor& pixels,
                         const Tensor& labels,
                         const Tensor& rows,
                         const Tensor& values);

namespace detail {
void gather_images_cuda(const Tensor& pixels,
                        const Tensor& labels,
                        const Tensor& rows,
                        const Tensor& values,
                        const ImageBatch& batch);
}  // namespace detail

}  // namespace halftone
