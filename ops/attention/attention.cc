#include "ops/attention/attention.h"

#include "core/integer.h"
#include "ops/attention/attention_rows.h"
#include "ops/cast/cast.h"
#include "ops/gemm/gemm.h"
#include "ops/op.h"

namespace halftone {
namespace {

using detail::AttentionRows;
using detail::AttentionShape;

// Rows of squares start at multiples of 16 bytes whatever the number of keys.
constexpr int64_t kRowMultiple = 8;

// Everything but tensors that forward and backward of one call share.
struct Attention {
  AttentionShape shape;
  AttentionOptions options;
  KeptDropout dropout{};

  int64_t square_stride() const { return round_up(shape.length, kRowMultiple); }

  /// Sequences taken together: on a GPU all, so that a product is one launch; on the CPU one, so
  /// that its scores stay in a cache.
  int64_t sequences_at_once(Device device) const { return device.is_cpu() ? 1 : shape.batch; }

  Tensor squares(int64_t sequences,
                 DType dtype,
                 Device device,
                 MemoryCategory category = MemoryCategory::workspace) const {
    return Tensor::empty(
        {sequences, shape.heads, shape.length, square_stride()}, dtype, device, category);
  }

  AttentionRows rows(int64_t first_sequence, int64_t sequences) const {
    const int64_t rows_of_sequence = shape.heads * shape.length;
    return {.rows = sequences * rows_of_sequence,
            .length = shape.length,
            .stride = square_stride(),
            .head_size = shape.head_size,
            .first_row = first_sequence * rows_of_sequence,
            .causal = options.causal,
            .dropout = dropout.counted};
  }
};

// The matrices of some sequences, all heads, as operands and outputs of batched products. A head's
// rows lie a token apart; the next head's start head_size elements further on.
class Products {
 public:
  Products(const Attention& attention, int64_t sequences, DType dtype, Device device)
      : attention_(attention),
        shape_(attention.shape),
        precision_(attention.options.precision),
        sequences_(sequences),
        device_(device) {
    if (dtype == DType::f64) {
      precision_ = {};  // gradient checks: nothing is rounded
    }
  }

  /// q, k or v (0, 1, 2) of qkv.
  GemmOperand part(const Tensor& qkv, int index, bool transposed) const {
    return {.data = part_of(qkv, index),
            .format = precision_.a.format,
            .transposed = transposed,
            .stride = 3 * shape_.columns(),
            .batch_stride = shape_.head_size,
            .group_stride = shape_.length * 3 * shape_.columns()};
  }
  GemmOperand output(const Tensor& y, bool transposed) const {  // y or dy
    return {.data = y.raw(),
            .format = precision_.a.format,
            .transposed = transposed,
            .stride = shape_.columns(),
            .batch_stride = shape_.head_size,
            .group_stride = shape_.length * shape_.columns()};
  }
  GemmOperand square(const Tensor& x, bool transposed) const {
    return {.data = x.raw(),
            .format = precision_.a.format,
            .transposed = transposed,
            .stride = attention_.square_stride(),
            .batch_stride = shape_.length * attention_.square_stride(),
            .group_stride = shape_.heads * shape_.length * attention_.square_stride()};
  }

  /// d, squares, = a b, over the head's elements.
  void multiply_to_square(const GemmOperand& a, const GemmOperand& b, const Tensor& d) const {
    GemmProblem p = problem(shape_.length, shape_.head_size, a, b);
    p.d = d.raw();
    p.d_dtype = d.dtype();
    p.d_stride = attention_.square_stride();
    p.d_batch_stride = shape_.length * p.d_stride;
    p.d_group_stride = shape_.heads * p.d_batch_stride;
    multiply(p);
  }

  /// y = a b, over keys.
  void multiply_to_output(const GemmOperand& a, const GemmOperand& b, const Tensor& y) const {
    multiply_to_rows(a, b, y.raw(), y.dtype(), shape_.columns(), false);
  }

  /// The gradient of q, k or v = a b, over keys or queries.
  void multiply_to_part(const GemmOperand& a,
                        const GemmOperand& b,
                        const GradSink& dqkv,
                        int index) const {
    multiply_to_rows(a,
                     b,
                     part_of(dqkv.buffer, index),
                     dqkv.buffer.dtype(),
                     3 * shape_.columns(),
                     dqkv.accumulate);
  }

 private:
  void* part_of(const Tensor& qkv, int index) const {
    return static_cast<std::byte*>(qkv.raw()) +
           static_cast<size_t>(index * shape_.columns()) * size_of(qkv.dtype());
  }

  void multiply_to_rows(const GemmOperand& a,
                        const GemmOperand& b,
                        void* d,
                        DType d_dtype,
                        int64_t stride,
                        bool accumulate) const {
    GemmProblem p = problem(shape_.head_size, shape_.length, a, b);
    p.d = d;
    p.d_dtype = d_dtype;
    p.d_stride = stride;
    p.d_batch_stride = shape_.head_size;
    p.d_group_stride = shape_.length * stride;
    p.accumulate = accumulate;
    multiply(p);
  }

  GemmProblem problem(int64_t N, int64_t K, const GemmOperand& a, const GemmOperand& b) const {
    GemmProblem p{.M = shape_.length,
                  .N = N,
                  .K = K,
                  .batch = sequences_ * shape_.heads,
                  .group = shape_.heads,
                  .a = a,
                  .b = b};
    p.acc = precision_.acc;
    p.promote = precision_.promote;
    return p;
  }

  void multiply(const GemmProblem& p) const {
    const std::string& path = attention_.options.path;
    try {
      gemm(p, device_, attention_.options.gemm_kernel);
    } catch (const std::invalid_argument& error) {  // a forced kernel names the layer it fails
      throw std::invalid_argument(
          concat("attention", path.empty() ? "" : " ", path, ": ", error.what()));
    }
  }

  const Attention& attention_;
  const AttentionShape& shape_;
  GemmPrecision precision_;
  int64_t sequences_;
  Device device_;
};

// Sequences [first, first + count) of a tensor whose first axis is the batch.
Tensor sequences_of(const Tensor& x, int64_t first, int64_t count) {
  std::vector<int64_t> dims = x.shape().dims();
  dims[0] = count;
  const Shape shape(std::move(dims));
  return x.view(shape, contiguous_strides(shape), first * x.stride(0));
}

// The two halves of what happens to rows, on either device.
void softmax_of(const AttentionRows& rows,
                const Tensor& scores,
                const Tensor& probabilities,
                const Tensor& dropped) {
  if (scores.is_cpu()) {
    detail::attention_softmax_cpu(rows, scores, probabilities, dropped);
  } else if constexpr (kHasCuda) {
    detail::attention_softmax_cuda(rows, scores, probabilities, dropped);
  }
}
void softmax_gradient(const AttentionRows& rows,
                      const Tensor& probabilities,
                      const Tensor& gradient,
                      const Tensor& dscores,
                      const Tensor& dropped) {
  if (gradient.is_cpu()) {
    detail::attention_softmax_backward_cpu(rows, probabilities, gradient, dscores, dropped);
  } else if constexpr (kHasCuda) {
    detail::attention_softmax_backward_cuda(rows, probabilities, gradient, dscores, dropped);
  }
}

// y, and the probabilities [B, heads, T, T] in `kept` unless that is undefined.
void forward(const Attention& attention, const Tensor& qkv, const Tensor& kept, const Tensor& y) {
  const Device device = qkv.device();
  const int64_t n = attention.sequences_at_once(device);
  const Products products(attention, n, qkv.dtype(), device);
  const bool drops = attention.dropout.counted.threshold != 0;
  const Tensor scores = attention.squares(n, compute_dtype(qkv.dtype()), device);
  const Tensor scratch = kept.defined() ? Tensor() : attention.squares(n, qkv.dtype(), device);
  const Tensor dropped = drops ? attention.squares(n, qkv.dtype(), device) : Tensor();
  for (int64_t b = 0; b < attention.shape.batch; b += n) {
    const Tensor x = sequences_of(qkv, b, n);
    const Tensor p = kept.defined() ? sequences_of(kept, b, n) : scratch;
    products.multiply_to_square(products.part(x, 0, false), products.part(x, 1, true), scores);
    softmax_of(attention.rows(b, n), scores, p, dropped);
    products.multiply_to_output(products.square(drops ? dropped : p, false),
                                products.part(x, 2, false),
                                sequences_of(y, b, n));
  }
}

// dqkv of every sequence. A GEMM adds to FP32 (FP64) only.
void backward_pass(const Attention& attention,
                   const Tensor& qkv,
                   const Tensor& kept,
                   const Tensor& dy,
                   const GradSink& dqkv) {
  const Device device = qkv.device();
  const int64_t n = attention.sequences_at_once(device);
  const Products products(attention, n, qkv.dtype(), device);
  const Tensor gradient = attention.squares(n, compute_dtype(qkv.dtype()), device);
  const Tensor dscores = attention.squares(n, qkv.dtype(), device);
  const Tensor dropped = attention.dropout.counted.threshold != 0
                             ? attention.squares(n, qkv.dtype(), device)
                             : Tensor();
  for (int64_t b = 0; b < attention.shape.batch; b += n) {
    const Tensor x = sequences_of(qkv, b, n);
    const Tensor p = sequences_of(kept, b, n);
    const Tensor g = sequences_of(dy, b, n);
    const GradSink dx{sequences_of(dqkv.buffer, b, n), dqkv.accumulate};
    products.multiply_to_square(products.output(g, false), products.part(x, 2, true), gradient);
    softmax_gradient(attention.rows(b, n), p, gradient, dscores, dropped);
    products.multiply_to_part(  // dq = ds k
        products.square(dscores, false),
        products.part(x, 1, false),
        dx,
        0);
    products.multiply_to_part(  // dk = ds^T q
        products.square(dscores, true),
        products.part(x, 0, false),
        dx,
        1);
    products.multiply_to_part(  // dv = p^T dy
        products.square(dropped.defined() ? dropped : p, true),
        products.output(g, false),
        dx,
        2);
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
  Attention call{.shape = detail::attention_shape("attention", qkv, options.heads),
                 .options = options};
  const AttentionShape& shape = call.shape;
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
  if (options.training) {
    call.dropout = keep_dropout("attention", options.dropout, qkv.device());
  }
  Tensor y = Tensor::empty({shape.batch, shape.length, shape.columns()}, qkv.dtype(), qkv.device());
  const bool keeps = recording() && qkv.requires_grad();
  const Tensor kept =
      keeps ? call.squares(shape.batch, qkv.dtype(), qkv.device(), MemoryCategory::activations)
            : Tensor();
  forward(call, qkv, kept, y);
  record({qkv}, y, [call, qkv = qkv.detach(), kept](const Tensor& dy, const GradSink& dqkv) {
    if (dqkv.accumulate && dqkv.buffer.dtype() != compute_dtype(qkv.dtype())) {
      const Tensor whole = empty_like(qkv, compute_dtype(qkv.dtype()));
      backward_pass(call, qkv, kept, dy, {whole, false});
      convert_into(whole, dqkv.buffer, true);
    } else {
      backward_pass(call, qkv, kept, dy, dqkv);
    }
  });
  return y;
}

}  // namespace halftone
