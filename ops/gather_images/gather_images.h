// A batch of images and labels, picked from a data set on the device that trains. Which rows come
// next may be read from the step's counters where they lie, so that a captured graph sees other
// images in every step.
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

/// The rows of a micro-batch, as its number says: iteration * grad_accum + micro-batch. An epoch
/// has ceil(N / batch) of them and an order of its own, from which each takes the next `batch`
/// rows.
struct EpochRows {
  Tensor orders;           // i32 [S, N]: epoch e's order in row e % S
  Tensor counters;         // i64 [2]: iteration, micro-batch
  int64_t grad_accum = 1;  // micro-batches an iteration
  int64_t batch = 1;       // rows of a micro-batch, the last of an epoch perhaps fewer
};

/// The same for B rows, at most rows.batch.
ImageBatch gather_images(const Tensor& pixels,
                         const Tensor& labels,
                         const EpochRows& rows,
                         int64_t B,
                         const Tensor& values);

namespace detail {

/// Where the rows of a batch start, found when it is gathered.
struct RowFinder {
  const int32_t* rows = nullptr;  // themselves, or the orders where there are counters
  const int64_t* counters = nullptr;
  int64_t grad_accum = 1;
  int64_t batch = 1;
  int64_t per_epoch = 1;
  int64_t num_orders = 1;
  int64_t count = 0;  // of an order

  // In 32 bits where both fit, which a GPU divides much faster.
  static HALFTONE_HD int64_t quotient(int64_t a, int64_t b) {
    return ((a | b) >> 32) == 0 ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b;
  }
  HALFTONE_HD const int32_t* operator()() const {
    if (counters == nullptr) {
      return rows;
    }
    const int64_t number = counters[0] * grad_accum + counters[1];
    const int64_t epoch = quotient(number, per_epoch);
    const int64_t order = epoch - quotient(epoch, num_orders) * num_orders;
    return rows + order * count + (number - epoch * per_epoch) * batch;
  }
};

void gather_images_cuda(const Tensor& pixels,
                        const Tensor& labels,
                        const RowFinder& rows,
                        const Tensor& values,
                        const ImageBatch& batch);

}  // namespace detail
}  // namespace halftone
