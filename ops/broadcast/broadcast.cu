#include "ops/broadcast/broadcast.cuh"

#include "ops/cast/cast.h"
#include "ops/reduce/trees.cuh"

namespace halftone {
namespace {

using detail::BroadcastSpan;
using detail::DeviceBroadcast;

// Element i of the gradient before it is summed: dy, or dy times the other operand.
template <class T>
struct Term {
  const T* dy;
  const T* factor;  // null: none
  int other;
  DeviceBroadcast plan;

  __device__ float at(int64_t i) const {
    const float g = widen(dy[i]);
    return factor == nullptr ? g : g * widen(factor[plan.of_operand(other, i)]);
  }
};

// The same by row and column of a reduction, each of which walks some axes of the result.
template <class T>
struct TermByPlace {
  Term<T> term;
  DeviceBroadcast places;  // rows are operand 0, columns operand 1

  __device__ float operator()(int64_t row, int64_t column) const {
    return term.at(walk(0, row) + walk(1, column));
  }

  // Element `index` of the axes that belong to one of the two.
  __device__ int64_t walk(int which, int64_t index) const {
    int64_t element = 0;
#pragma unroll 1
    for (int k = places.rank - 1; k >= 0; --k) {
      if (places.stride[which][k] != 0) {
        element += device::split(index, places.extent[k]) * places.stride[which][k];
      }
    }
    return element;
  }
};

// Spans of the result, those where `repeated` is `rows` belonging to the rows of a reduction and
// the others to its columns.
DeviceBroadcast places_of(const std::vector<BroadcastSpan>& spans, bool rows) {
  DeviceBroadcast places;
  places.rank = static_cast<int>(spans.size());
  int64_t stride = 1;
  for (int k = places.rank - 1; k >= 0; --k) {
    const BroadcastSpan& span = spans[static_cast<size_t>(k)];
    places.extent[k] = span.extent;
    places.stride[0][k] = span.repeated == rows ? stride : 0;
    places.stride[1][k] = span.repeated == rows ? 0 : stride;
    stride *= span.extent;
  }
  return places;
}

template <bool accumulate, class T, class S>
struct TermElements {
  Term<T> term;
  S* out;

  template <int N>
  __device__ void operator()(int64_t i) const {
    static_assert(N == 1);
    put<accumulate>(out[i], term.at(i));
  }
};

template <class T>
void sum_repeated(const std::vector<BroadcastSpan>& spans,
                  const Term<T>& term,
                  const Tensor& sums) {
  float* out = sums.data<float>();
  const bool by_rows = spans.back().repeated && spans.size() <= 2;  // the row tree or the flat one
  const TermByPlace<T> value{term, places_of(spans, !by_rows)};
  int64_t repeated = 1;
  for (const BroadcastSpan& span : spans) {
    repeated *= span.repeated ? span.extent : 1;
  }
  if (spans.size() == 1) {
    device::flat_sum(repeated, value, 1.0f, out, sums.device());
  } else if (by_rows) {
    device::row_sums(sums.numel(), repeated, value, 1.0f, out);
  } else {
    device::column_sums(repeated, sums.numel(), value, 1.0f, out, sums.device());
  }
}

}  // namespace

DeviceBroadcast detail::device_broadcast(const BroadcastPlan& plan) {
  DeviceBroadcast device;
  device.rank = static_cast<int>(plan.axes.size());
  HALFTONE_CHECK(device.rank <= DeviceBroadcast::kMaxAxes,
                 "broadcast: ",
                 device.rank,
                 " axes that differ; a GPU takes ",
                 DeviceBroadcast::kMaxAxes);
  for (int k = 0; k < device.rank; ++k) {
    const BroadcastAxis& axis = plan.axes[static_cast<size_t>(k)];
    device.extent[k] = axis.extent;
    device.stride[0][k] = axis.stride[0];
    device.stride[1][k] = axis.stride[1];
  }
  return device;
}

void detail::broadcast_gradient_cuda(const BroadcastPlan& plan,
                                     int operand,
                                     const Tensor& dy,
                                     const Tensor& factor,
                                     const GradSink& sink) {
  dispatch_gpu(dy.dtype(), "broadcast", [&]<class T>() {
    const Term<T> term{dy.data<T>(),
                       factor.defined() ? factor.data<T>() : nullptr,
                       1 - operand,
                       device_broadcast(plan)};
    if (!plan.repeats(operand)) {
      with_sink<T>(sink, [&]<bool accumulate, class S>(S* out) {
        launch_elements<1>(dy.numel(), TermElements<accumulate, T, S>{term, out}, {});
      });
      return;
    }
    const Tensor sums = Tensor::empty(
        sink.buffer.shape(), DType::f32, sink.buffer.device(), MemoryCategory::workspace);
    sum_repeated(spans_of(plan, operand), term, sums);
    convert_gradient(sums, sink);
  });
}

}  // namespace halftone
