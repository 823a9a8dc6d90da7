#include "tests/support/op_check.h"

#include "core/parallel.h"

namespace halftone::testing {
namespace {

// y = x with a tape entry, so that x's gradient is an activation's. The leaf behind it gets a copy.
Tensor activation_of(const Tensor& x, Tensor* gradient) {
  Tensor y = x.detach();
  const Tensor leaf = Tensor::zeros({}, DType::f64).set_requires_grad();
  record({leaf}, y, [gradient](const Tensor& dy, const GradSink& dx) {
    *gradient = empty_like(dy);
    copy(dy, *gradient);
    fill_zero(dx.buffer);
  });
  return y;
}

Tolerance allowed(const OpTolerance& spec, DType dtype, const std::vector<double>& expected) {
  double largest = spec.magnitude;
  if (largest == 0.0) {
    for (const double value : expected) {
      largest = std::max(largest, std::fabs(value));
    }
  }
  const Tolerance store = rounded(dtype);
  return {.atol = largest * (spec.computed * unit_roundoff(DType::f32) +
                             spec.stored * unit_roundoff(dtype)) +
                  store.atol,
          .rtol = store.rtol};
}

}  // namespace

Tensor as_dtype(const Tensor& x, DType dtype) {
  const std::vector<double> values = x.to_doubles();
  const Tensor y = Tensor::empty(x.shape(), dtype);
  dispatch_floating(dtype, "as_dtype", [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      y.data<T>()[i] = narrow<T>(static_cast<ComputeType<T>>(values[i]));
    }
  });
  return y;
}

OpResult run_op(const TensorFunction& f,
                const Tensors& inputs,
                const Tensor& dy,
                DType dtype,
                bool parameters) {
  Tensors gradients(inputs.size());
  Tensors given;
  for (size_t n = 0; n < inputs.size(); ++n) {
    Tensor x = as_dtype(inputs[n], dtype);
    given.push_back(parameters ? x.set_requires_grad() : activation_of(x, &gradients[n]));
  }
  const Tensor y = f(given);
  OpResult result{y.to_doubles()};
  backward(y, as_dtype(dy, y.dtype()));
  for (size_t n = 0; n < inputs.size(); ++n) {
    const Tensor g = parameters ? given[n].grad() : gradients[n];
    EXPECT_TRUE(g.defined()) << "input " << n << " got no gradient";
    result.push_back(g.defined() ? g.to_doubles() : std::vector<double>());
  }
  return result;
}

void expect_like_double(const TensorFunction& f,
                        const Tensors& inputs,
                        const OpTolerance& output,
                        const OpTolerance& gradient) {
  const int threads = num_threads();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(concat(dtype, ", first input of shape ", inputs[0].shape()));
    Tensors rounded_inputs;
    for (const Tensor& x : inputs) {
      rounded_inputs.push_back(Tensor::from(as_dtype(x, dtype).to_doubles(), x.shape()));
    }
    const Shape shape = f(rounded_inputs).shape();
    const Tensor dy = Tensor::from(as_dtype(random_tensor(shape, 99), dtype).to_doubles(), shape);
    const OpResult expected = run_op(f, rounded_inputs, dy, DType::f64);
    for (const bool parameters : {false, true}) {
      SCOPED_TRACE(parameters ? "parameters" : "activations");
      set_num_threads(1);
      const OpResult actual = run_op(f, rounded_inputs, dy, dtype, parameters);
      const auto y_allowed = allowed(output, dtype, expected[0]);
      EXPECT_TRUE(all_close(actual[0], expected[0], y_allowed)) << "output";
      for (size_t n = 1; n < actual.size(); ++n) {
        Tolerance t = allowed(gradient, dtype, expected[n]);
        t.rtol = parameters ? rounded(DType::f32).rtol : t.rtol;
        EXPECT_TRUE(all_close(actual[n], expected[n], t)) << "gradient of input " << n - 1;
      }
      for (const int count : {2, 5}) {
        set_num_threads(count);
        const OpResult again = run_op(f, rounded_inputs, dy, dtype, parameters);
        for (size_t n = 0; n < actual.size(); ++n) {
          EXPECT_TRUE(same_bits(again[n], actual[n])) << count << " threads, result " << n;
        }
      }
    }
  }
  set_num_threads(threads);
}

}  // namespace halftone::testing
