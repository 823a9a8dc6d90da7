#include "ops/attention/attention.h"

#include <cmath>

#include "core/reduce.h"
#include "ops/gemm/gemm.h"
#include "ops/op.h"
#include "ops/softmax/softmax_row.h"

namespace halftone {
namespace {

using detail::AttentionShape;

// The matrices of one sequence, all heads, as operands and outputs of batched products. A head's
// rows lie a token apart; the next head's start head_size elements further on.
template <class T>
class Sequence {
 public:
  Sequence(const AttentionShape& shape, const AttentionOptions& options)
      : shape_(shape), options_(options) {
    if constexpr (std::is_same_v<T, double>) {
      options_.precision = {};  // gradient checks: nothing is rounded
    }
  }

  /// The part `index` (q, k, v: 0, 1, 2) of sequence b in qkv, or its gradient's.
  template <class S>
  S* part(S* qkv, int64_t b, int index) const {
    const int64_t columns = shape_.columns();
    return qkv + b * shape_.length * 3 * columns + index * columns;
  }

  GemmOperand packed(const T* data, bool transposed) const {
    return {.data = data,
            .format = options_.precision.a.format,
            .transposed = transposed,
            .stride = 3 * shape_.columns(),
            .batch_stride = shape_.head_size};
  }
  GemmOperand output(const T* y, int64_t b, bool transposed) const {  // y or dy
    return {.data = y + b * shape_.length * shape_.columns(),
            .format = options_.precision.a.format,
            .transposed = transposed,
            .stride = shape_.columns(),
            .batch_stride = shape_.head_size};
  }
  GemmOperand square(const T* data, bool transposed) const {  // [heads, T, T]
    return {.data = data,
            .format = options_.precision.a.format,
            .transposed = transposed,
            .stride = shape_.length,
            .batch_stride = shape_.length * shape_.length};
  }

  /// d [heads, T, T] = a b, over the head's elements.
  void multiply_to_square(const GemmOperand& a, const GemmOperand& b, ComputeType<T>* d) const {
    GemmProblem p = problem(shape_.length, shape_.head_size, a, b);
    p.d = d;
    p.d_dtype = kDTypeOf<ComputeType<T>>;
    p.d_stride = shape_.length;
    p.d_batch_stride = shape_.length * shape_.length;
    multiply(p);
  }

  /// d [T, heads, head_size], rows `stride` apart, = a b, over keys or queries.
  template <class S>
  void multiply_to_rows(const GemmOperand& a,
                        const GemmOperand& b,
                        S* d,
                        int64_t stride,
                        bool accumulate = false) const {
    GemmProblem p = problem(shape_.head_size, shape_.length, a, b);
    p.d = d;
    p.d_dtype = kDTypeOf<S>;
    p.d_stride = stride;
    p.d_batch_stride = shape_.head_size;
    p.accumulate = accumulate;
    multiply(p);
  }

 private:
  GemmProblem problem(int64_t N, int64_t K, const GemmOperand& a, const GemmOperand& b) const {
    GemmProblem p{.M = shape_.length, .N = N, .K = K, .batch = shape_.heads, .a = a, .b = b};
    p.acc = options_.precision.acc;
    p.promote = options_.precision.promote;
    return p;
  }
  void multiply(const GemmProblem& p) const {
    try {
      gemm(p, {}, options_.gemm_kernel);
    } catch (const std::invalid_argument& error) {  // a forced kernel names the layer it fails
      throw std::invalid_argument(
          concat("attention", options_.path.empty() ? "" : " ", options_.path, ": ", error.what()));
    }
  }

  AttentionShape shape_;
  AttentionOptions options_;
};

template <class T>
Tensor squares(const AttentionShape& shape) {
  return Tensor::empty(
      {shape.heads, shape.length, shape.length}, kDTypeOf<T>, {}, MemoryCategory::workspace);
}

// Keys that a query sees.
int64_t visible_keys(const AttentionShape& shape, bool causal, int64_t query) {
  return causal ? query + 1 : shape.length;
}

// Dropout's factors of the first `n` keys of a row [b, head, query] (flattened).
const float* row_factors(const DropoutMask& mask, int64_t row, int64_t length, int64_t n) {
  thread_local std::vector<float> factors;
  factors.resize(static_cast<size_t>(length));
  dropout_factors(mask, static_cast<uint64_t>(row * length), n, factors.data());
  return factors.data();
}

// dropped = p * factors over the first `n` keys, rounded; zero from there.
template <class T>
void drop_row(const float* factors, int64_t n, int64_t length, const T* p, T* dropped) {
  for (int64_t i = 0; i < n; ++i) {
    dropped[i] = narrow<T>(widen(p[i]) * ComputeType<T>(factors[i]));
  }
  std::fill(dropped + n, dropped + length, narrow<T>(0));
}

// Probabilities of every row of one sequence from its unscaled scores, which are used up; and the
// probabilities after dropout where that is asked for.
template <class T>
void softmax_rows(const AttentionShape& shape,
                  bool causal,
                  const DropoutMask& mask,
                  int64_t b,
                  ComputeType<T>* scores,
                  T* probabilities,
                  T* dropped) {
  using C = ComputeType<T>;
  const int64_t length = shape.length;
  const C scale = math::divide(C(1), math::sqrt(static_cast<C>(shape.head_size)));
  for_rows(shape.heads * length, length, [=, &mask, &shape](int64_t row) {
    C* s = scores + row * length;
    T* p = probabilities + row * length;
    const int64_t n = visible_keys(shape, causal, row % length);
    for (int64_t i = 0; i < n; ++i) {
      s[i] *= scale;
    }
    const C inverse_sum = softmax_row<C>(
                              n, [s](int64_t i) { return s[i]; }, [s](int64_t i, C e) { s[i] = e; })
                              .inverse_sum;
    put_run<false>(p, n, [=](int64_t i) { return s[i] * inverse_sum; });
    std::fill(p + n, p + length, narrow<T>(C(0)));
    if (dropped != probabilities) {
      const float* factors = row_factors(mask, b * shape.heads * length + row, length, n);
      drop_row(factors, n, length, p, dropped + row * length);
    }
  });
}

template <class T>
void forward(const AttentionShape& shape,
             const AttentionOptions& options,
             const DropoutMask& mask,
             const Tensor& qkv,
             const Tensor& kept,  // [B, heads, T, T] or undefined
             const Tensor& y) {
  const Sequence<T> sequence(shape, options);
  const Tensor scores = squares<ComputeType<T>>(shape);
  const Tensor scratch = kept.defined() ? Tensor() : squares<T>(shape);
  const bool drops = mask.threshold != 0;
  const Tensor dropped = drops ? squares<T>(shape) : Tensor();
  const T* x = qkv.data<T>();
  for (int64_t b = 0; b < shape.batch; ++b) {
    const T* q = sequence.part(x, b, 0);
    const T* k = sequence.part(x, b, 1);
    const T* v = sequence.part(x, b, 2);
    T* p = kept.defined() ? kept.data<T>() + b * scores.numel() : scratch.data<T>();
    T* used = drops ? dropped.data<T>() : p;
    sequence.multiply_to_square(
        sequence.packed(q, false), sequence.packed(k, true), scores.data<ComputeType<T>>());
    softmax_rows<T>(shape, options.causal, mask, b, scores.data<ComputeType<T>>(), p, used);
    sequence.multiply_to_rows(sequence.square(used, false),
                              sequence.packed(v, false),
                              y.data<T>() + b * shape.length * shape.columns(),
                              shape.columns());
  }
}

// The gradient of every row's unscaled scores, rounded to T, from that of the (dropped)
// probabilities, which is used up; and the probabilities after dropout, unless `dropped` is null.
template <class T>
void softmax_rows_backward(const AttentionShape& shape,
                           bool causal,
                           const DropoutMask& mask,
                           int64_t b,
                           const T* probabilities,
                           ComputeType<T>* gradient,
                           T* dscores,
                           T* dropped) {
  using C = ComputeType<T>;
  const int64_t length = shape.length;
  const C scale = math::divide(C(1), math::sqrt(static_cast<C>(shape.head_size)));
  for_rows(shape.heads * length, length, [=, &mask, &shape](int64_t row) {
    const T* p = probabilities + row * length;
    C* g = gradient + row * length;
    T* ds = dscores + row * length;
    const int64_t n = visible_keys(shape, causal, row % length);
    if (dropped != nullptr) {
      const float* factors = row_factors(mask, b * shape.heads * length + row, length, n);
      drop_row(factors, n, length, p, dropped + row * length);
      for (int64_t i = 0; i < n; ++i) {
        g[i] *= C(factors[i]);
      }
    }
    const C dot = row_sum<C>(n, [=](int64_t i) { return widen(p[i]) * g[i]; });
    put_run<false>(ds, n, [=](int64_t i) { return widen(p[i]) * (g[i] - dot) * scale; });
    std::fill(ds + n, ds + length, narrow<T>(C(0)));
  });
}

// dqkv, of the dtype S, of every sequence.
template <class T, class S>
void backward_pass(const AttentionShape& shape,
                   const AttentionOptions& options,
                   const DropoutMask& mask,
                   const Tensor& qkv,
                   const Tensor& kept,
                   const Tensor& dy,
                   S* dqkv,
                   bool accumulate) {
  using C = ComputeType<T>;
  const Sequence<T> sequence(shape, options);
  const Tensor gradient = squares<C>(shape);
  const Tensor dscores = squares<T>(shape);
  const Tensor scratch = mask.threshold != 0 ? squares<T>(shape) : Tensor();
  T* dropped = scratch.defined() ? scratch.data<T>() : nullptr;
  const T* x = qkv.data<T>();
  const T* g = dy.data<T>();
  const int64_t stride = 3 * shape.columns();
  for (int64_t b = 0; b < shape.batch; ++b) {
    const T* p = kept.data<T>() + b * gradient.numel();
    sequence.multiply_to_square(sequence.output(g, b, false),
                                sequence.packed(sequence.part(x, b, 2), true),
                                gradient.data<C>());
    softmax_rows_backward<T>(
        shape, options.causal, mask, b, p, gradient.data<C>(), dscores.data<T>(), dropped);
    const T* ds = dscores.data<T>();
    sequence.multiply_to_rows(sequence.square(ds, false),  // dq = ds k
                              sequence.packed(sequence.part(x, b, 1), false),
                              sequence.part(dqkv, b, 0),
                              stride,
                              accumulate);
    sequence.multiply_to_rows(sequence.square(ds, true),  // dk = ds^T q
                              sequence.packed(sequence.part(x, b, 0), false),
                              sequence.part(dqkv, b, 1),
                              stride,
                              accumulate);
    sequence.multiply_to_rows(
        sequence.square(dropped != nullptr ? dropped : p, true),  // dv = p^T dy
        sequence.output(g, b, false),
        sequence.part(dqkv, b, 2),
        stride,
        accumulate);
  }
}

}  // namespace

detail::AttentionShape detail::attention_shape(std::string_view op,
                                               const Tensor& qkv,
                                               int64_t heads) {
  check_floating(op, "qkv", qkv);
  HALFTONE_CHECK(
      qkv.rank() == 3 && heads >= 1 && qkv.size(-1) >= 3 * heads && qkv.size(-1) % (3 * heads) == 0,
      op,
      ": qkv has shape ",
      qkv.shape(),
      ", expected [batch, tokens, 3 * heads * head size] with ",
      heads,
      " heads");
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

Tensor attention(const Tensor& qkv, const AttentionOptions& options) {
  const AttentionShape shape = detail::attention_shape("attention", qkv, options.heads);
  const Format format = options.precision.a.format;
  HALFTONE_CHECK(options.precision.b.format == format,
                 "attention: operands of ",
                 to_string(format),
                 " and ",
                 to_string(options.precision.b.format),
                 ", expected one format");
  HALFTONE_CHECK(qkv.dtype() == DType::f64 || format == format_of(qkv.dtype()) ||
                     (qkv.dtype() == DType::f32 && format == kTf32),
                 "attention: qkv is ",
                 qkv.dtype(),
                 ", but the precision's operands are ",
                 to_string(format));
  require_cpu("attention", qkv);
  DropoutMask mask;
  if (options.training) {
    mask = make_dropout_mask("attention", options.dropout);
  }
  Tensor y = Tensor::empty({shape.batch, shape.length, shape.columns()}, qkv.dtype());
  const bool keeps = recording() && qkv.requires_grad();
  const Tensor kept =
      keeps ? Tensor::empty({shape.batch, shape.heads, shape.length, shape.length}, qkv.dtype())
            : Tensor();
  dispatch_floating(
      qkv.dtype(), "attention", [&]<class T>() { forward<T>(shape, options, mask, qkv, kept, y); });
  record({qkv},
         y,
         [shape, options, mask, qkv = qkv.detach(), kept](const Tensor& dy, const GradSink& dqkv) {
           dispatch_floating(dy.dtype(), "attention", [&]<class T>() {
             using C = ComputeType<T>;
             if (dqkv.buffer.dtype() == kDTypeOf<C>) {
               backward_pass<T>(
                   shape, options, mask, qkv, kept, dy, dqkv.buffer.data<C>(), dqkv.accumulate);
             } else if (!dqkv.accumulate) {
               backward_pass<T>(shape, options, mask, qkv, kept, dy, dqkv.buffer.data<T>(), false);
             } else {  // a GEMM adds to FP32 only
               const Tensor whole = empty_like(qkv, kDTypeOf<C>);
               backward_pass<T>(shape, options, mask, qkv, kept, dy, whole.data<C>(), false);
               write_gradient<T>(dqkv, [g = whole.data<C>()](int64_t i) { return g[i]; });
             }
           });
         });
  return y;
}

}  // namespace halftone
