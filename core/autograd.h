// The tape. An operation computes its output, then records a closure that turns the output's
// gradient into its inputs' gradients. backward() walks the closures in reverse order of recording,
// with an explicit stack, and frees each as soon as it has run. Recording is off inside closures:
// there are no second derivatives.
//
// A closure receives one GradSink per input. A sink that converts to false is not wanted. Otherwise
// the closure writes the whole gradient into sink.buffer, or adds to it where sink.accumulate says
// so, or hands on a tensor it has (GradSink::take); sinks are to be served in the order of the
// inputs, because one tensor may be several inputs and its second sink then accumulates onto the
// first. The gradient of an activation has the activation's dtype; the gradient of a parameter is
// f32 whatever the parameter's own dtype (f64 for f64).
//
// Gradients that were handed on share memory: of all tensors that a sum passes its gradient to, for
// one. They are only read, until something is to be added to one of them: then it is copied first,
// unless the others are gone by then.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "core/tensor.h"

namespace halftone {

struct GradMeta;

struct GradSink {
  Tensor buffer;
  bool accumulate = false;
  std::shared_ptr<GradMeta> taker = nullptr;  // null where take() has to decline

  explicit operator bool() const { return buffer.defined(); }

  /// Makes `gradient` itself, which nobody may write to any more, the whole gradient of the input,
  /// in the input's shape. Declines, and returns false, where the gradient has to be in memory of
  /// its own (a leaf's) or to be added to another, or has another dtype.
  bool take(const Tensor& gradient) const;
};

/// Whether operations record themselves now.
bool recording();

/// Turns recording off while it lives (evaluation, backward closures).
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// Turns recording on while it lives, inside a backward closure that computes a piece of the
/// forward pass again and walks what it recorded (models/recompute.h).
class WithGrad {
 public:
  WithGrad();
  ~WithGrad();
  WithGrad(const WithGrad&) = delete;
  WithGrad& operator=(const WithGrad&) = delete;

 private:
  bool previous_;
};

namespace detail {
using BackwardFunction = std::function<void(const Tensor& dy, std::span<GradSink> sinks)>;
bool wants_record(std::span<const Tensor> inputs);
void record_node(std::span<const Tensor> inputs, Tensor& output, BackwardFunction backward);

template <class F, size_t... I>
void call_backward(const F& f, const Tensor& dy, std::span<GradSink> s, std::index_sequence<I...>) {
  f(dy, s[I]...);
}
}  // namespace detail

/// Records that `output` came from `inputs`; `backward` is called as backward(dy, sink of input 0,
/// sink of input 1, ...). Does nothing where recording is off or no input needs a gradient. An
/// undefined tensor is an input without gradient.
template <size_t N, class F>
void record(const Tensor (&inputs)[N], Tensor& output, F backward) {
  if (!detail::wants_record(inputs)) {
    return;
  }
  detail::record_node(
      inputs, output, [f = std::move(backward)](const Tensor& dy, std::span<GradSink> sinks) {
        detail::call_backward(f, dy, sinks, std::make_index_sequence<N>());
      });
}

/// Propagates d(loss) = `seed` through everything `loss` was recorded from. `loss` has one element;
/// it is f32 or f64. Throws std::invalid_argument if it has more, or if nothing was recorded.
void backward(const Tensor& loss, float seed = 1.0f);
/// The same from a tensor of any shape and its gradient `dy` (same shape and dtype).
void backward(const Tensor& y, const Tensor& dy);

}  // namespace halftone
