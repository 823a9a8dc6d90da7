#include "ops/linear/linear.h"

#include "ops/cast/cast.h"
#include "ops/gelu/gelu.h"
#include "ops/op.h"
#include "ops/reduce/reduce.h"
#include "ops/relu/relu.h"

namespace halftone {
namespace {

int64_t rows_of(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }
Tensor as_matrix(const Tensor& x) { return x.view(Shape{rows_of(x), x.size(-1)}); }

// dpre = dy * activation'(pre), rounded on store.
Tensor activation_backward(const Tensor& dy, const Tensor& pre, Activation activation) {
  const GradSink dpre{empty_like(dy)};
  if (activation == Activation::relu) {
    map_gradient<detail::ReluSlope>(pre, dy, dpre);
  } else {
    map_gradient<detail::GeluSlope>(pre, dy, dpre);
  }
  return dpre.buffer;
}

GemmProblem make_problem(const GemmPrecision& precision,
                         const QuantizedMatrix& a,
                         const QuantizedMatrix& b,
                         const Tensor& d) {
  GemmProblem problem;
  problem.M = d.size(0);
  problem.N = d.size(1);
  problem.K = a.values.size(a.k_axis);
  problem.a = a.as_a();
  problem.b = b.as_b();
  problem.d = d.raw();
  problem.d_dtype = d.dtype();
  problem.d_stride = d.size(1);
  problem.acc = precision.acc;
  problem.promote = precision.promote;
  return problem;
}

// The operands of one call, in the forward pass and again in the backward pass.
struct Operands {
  LinearPrecision precision;
  LinearState* state;
  Tensor w;
  bool training;  // amax histories observe this call

  QuantizeOptions options(LinearOperand operand, std::string_view use) const {
    return state == nullptr ? QuantizeOptions{} : state->options(operand, use, training);
  }
  QuantizedMatrix w_forward() const {
    const bool kept = state != nullptr && state->w_forward().values.defined();
    return kept ? state->w_forward()
                : quantize(w, 1, precision.forward.b, options(LinearOperand::w, "w"));
  }
  QuantizedMatrix w_dgrad() const {
    const bool kept = state != nullptr && state->w_dgrad().values.defined();
    return kept ? state->w_dgrad()
                : quantize(w, 0, precision.dgrad.b, options(LinearOperand::w, "w_dgrad"));
  }
  void multiply(const GemmProblem& problem) const {
    if (state == nullptr || state->gemm_kernel().empty()) {
      gemm(problem, w.device());
      return;
    }
    try {
      gemm(problem, w.device(), state->gemm_kernel());
    } catch (const std::invalid_argument& error) {  // a forced kernel names the layer it fails
      throw std::invalid_argument(concat("linear ", state->path(), ": ", error.what()));
    }
  }
};

}  // namespace

LinearState::LinearState(std::string path,
                         const LinearPrecision& precision,
                         RandomSource random,
                         std::string gemm_kernel,
                         Device device)
    : path_(std::move(path)),
      precision_(precision),
      random_(std::move(random)),
      gemm_kernel_(std::move(gemm_kernel)) {
  const OperandPrecision* operands[] = {
      &precision.forward.a, &precision.forward.b, &precision.dgrad.a};
  for (size_t i = 0; i < histories_.size(); ++i) {
    if (operands[i]->scaling == Scaling::delayed) {
      histories_[i] = make_amax_history(precision.history, device);
    }
  }
}

QuantizeOptions LinearState::options(LinearOperand operand, std::string_view use, bool observe) {
  AmaxHistory& history = histories_[static_cast<size_t>(operand)];
  return {.history = history.amax.defined() ? &history : nullptr,
          .observe = observe,
          .random = random_,
          .purpose = concat(path_, "/", use)};
}

void LinearState::refresh(const Tensor& weights) {
  // Before the new ones are made: never two copies at once. In the reverse order, so that they get
  // the same memory again: a recorded step reads them where they were.
  w_dgrad_.scales = {};
  w_dgrad_.values = {};
  w_forward_.scales = {};
  w_forward_.values = {};
  QuantizeOptions how = options(LinearOperand::w, "w", true);
  how.category = MemoryCategory::quantized;
  w_forward_ = quantize(weights, 1, precision_.forward.b, how);
  if (serves_both_axes(precision_.forward.b)) {
    w_dgrad_ = w_forward_.along(0);
    return;
  }
  how.purpose = concat(path_, "/w_dgrad");
  w_dgrad_ = quantize(weights, 0, precision_.dgrad.b, how);
}

void LinearState::end_step() {
  for (AmaxHistory* history : histories()) {
    push_amax(*history);
  }
}

void LinearState::forget_pending() {
  for (AmaxHistory* history : histories()) {
    copy(Tensor::from<float>({-1.0f}, {1}), history->pending);
  }
}

std::vector<AmaxHistory*> LinearState::histories() {
  std::vector<AmaxHistory*> all;
  for (AmaxHistory& history : histories_) {
    if (history.amax.defined()) {
      all.push_back(&history);
    }
  }
  return all;
}

Tensor linear(const Tensor& x,
              const Tensor& w,
              const Tensor& b,
              const LinearPrecision& precision,
              LinearState* state,
              Activation activation) {
  const std::string name = state == nullptr ? "linear" : "linear " + state->path();
  HALFTONE_CHECK(w.rank() == 2, name, ": w has shape ", w.shape(), ", expected [out, in]");
  HALFTONE_CHECK(x.rank() >= 1 && x.size(-1) == w.size(1),
                 name,
                 ": x has shape ",
                 x.shape(),
                 ", expected [..., ",
                 w.size(1),
                 "] for w ",
                 w.shape());
  HALFTONE_CHECK(w.dtype() == x.dtype(), name, ": w is ", w.dtype(), ", x is ", x.dtype());
  HALFTONE_CHECK(!b.defined() || (b.shape() == Shape{w.size(0)} && b.dtype() == x.dtype()),
                 name,
                 ": b is ",
                 b.dtype(),
                 " ",
                 b.shape(),
                 ", expected ",
                 x.dtype(),
                 " ",
                 Shape{w.size(0)});
  HALFTONE_CHECK(x.is_contiguous() && w.is_contiguous(), name, ": x and w must be contiguous");

  const Operands operands{precision, state, w.detach(), recording()};
  const Tensor rows = as_matrix(x);
  const QuantizedMatrix xq =
      quantize(rows, 1, precision.forward.a, operands.options(LinearOperand::x, "x"));
  const QuantizedMatrix wq = operands.w_forward();
  std::vector<int64_t> dims = x.shape().dims();
  dims.back() = w.size(0);
  Tensor y = Tensor::empty(Shape(dims), x.dtype(), x.device());
  const Tensor y_rows = as_matrix(y);

  GemmProblem problem = make_problem(precision.forward, xq, wq, y_rows);
  problem.epilogue.bias = b.defined() ? b.raw() : nullptr;
  problem.epilogue.bias_dtype = x.dtype();
  problem.epilogue.activation = activation;
  // What the activation's derivative reads: the pre-activation, or for ReLU the output, whose sign
  // says as much.
  Tensor pre = activation == Activation::relu ? y_rows : Tensor();
  if (activation == Activation::gelu && recording()) {
    pre = empty_like(y_rows);
    problem.epilogue.pre_activation = pre.raw();
  }
  operands.multiply(problem);

  const bool reuse_x = serves_both_axes(precision.forward.a);
  record({x, w, b},
         y,
         [operands,
          activation,
          pre,
          source = reuse_x ? Tensor() : rows,
          xq = reuse_x ? xq.along(0) : QuantizedMatrix()](
             const Tensor& dy_any, GradSink dx, GradSink dw, GradSink db) {
           const LinearPrecision& p = operands.precision;
           const Tensor dy = activation == Activation::none
                                 ? as_matrix(dy_any)
                                 : activation_backward(as_matrix(dy_any), pre, activation);
           const bool reuse_dy = serves_both_axes(p.dgrad.a);
           QuantizedMatrix dyq;
           if (dx || reuse_dy) {
             dyq = quantize(dy, 1, p.dgrad.a, operands.options(LinearOperand::dy, "dy"));
           }
           if (dx) {
             const Tensor out = as_matrix(dx.buffer);
             const bool add_later = dx.accumulate && size_of(out.dtype()) == 2;
             const Tensor product = add_later ? empty_like(out) : out;
             GemmProblem dgrad = make_problem(p.dgrad, dyq, operands.w_dgrad(), product);
             dgrad.accumulate = dx.accumulate && !add_later;
             operands.multiply(dgrad);
             if (add_later) {
               convert_into(product, out, true);
             }
           }
           if (dw) {
             const QuantizedMatrix dy_k =
                 reuse_dy
                     ? dyq.along(0)
                     : quantize(dy, 0, p.wgrad.a, operands.options(LinearOperand::dy, "dy_wgrad"));
             const QuantizedMatrix x_k =
                 source.defined()
                     ? quantize(source, 0, p.wgrad.b, operands.options(LinearOperand::x, "x_wgrad"))
                     : xq;
             GemmProblem wgrad = make_problem(p.wgrad, dy_k, x_k, dw.buffer);
             wgrad.accumulate = dw.accumulate;
             operands.multiply(wgrad);
           }
           sum_rows_into(dy, db);  // by the column tree, in FP32
         });
  return y;
}

}  // namespace halftone
