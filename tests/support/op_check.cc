#include "tests/support/op_check.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/parallel.h"
#include "tests/support/devices.h"

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

// Fails where memory behind x on a GPU, up to the end of its 256 bytes, is not the poison it was
// filled with. Blocks smaller than that are shared by tensors of several sizes.
void expect_guarded([[maybe_unused]] const Tensor& x, [[maybe_unused]] const std::string& what) {
#ifdef HALFTONE_HAS_CUDA
  constexpr int64_t kBlock = 256;
  if (x.is_cpu() || x.bytes() <= 4 * kBlock) {
    return;
  }
  const auto slack = static_cast<size_t>((kBlock - x.bytes() % kBlock) % kBlock);
  std::vector<uint8_t> guard(slack, 0);
  cuda::copy_bytes(
      guard.data(), Device{}, static_cast<uint8_t*>(x.raw()) + x.bytes(), x.device(), slack);
  EXPECT_EQ(guard, std::vector<uint8_t>(slack, 0xff)) << "written behind the " << what;
#endif
}

// Leaves blocks of all-one bytes, NaN in every type, for the next tensors of x's number of
// elements.
void poison_memory_for(const Tensor& x, Device device) {
  for (const int64_t size : {2, 4}) {
    const Shape shape{std::max<int64_t>(1, x.numel() * size)};
    Tensors blocks(12);
    for (Tensor& block : blocks) {
      block = Tensor::empty(shape, DType::u8, device);
#ifdef HALFTONE_HAS_CUDA
      // To the end of the block: the pool hands out whole multiples of 256 bytes.
      std::vector<uint8_t> whole(static_cast<size_t>((shape.numel() + 255) / 256 * 256), 0xff);
      cuda::copy_bytes(block.raw(), device, whole.data(), Device{}, whole.size());
#endif
    }
  }
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

std::vector<double> with_one_nan(std::vector<double> values) {
  for (double& value : values) {
    value = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  }
  return values;
}

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
                bool parameters,
                Device device) {
  Tensors gradients(inputs.size());
  Tensors given;
  for (size_t n = 0; n < inputs.size(); ++n) {
    Tensor x = to_device(as_dtype(inputs[n], dtype), device);
    given.push_back(parameters ? x.set_requires_grad() : activation_of(x, &gradients[n]));
  }
  const Tensor y = f(given);
  OpResult result{y.to_doubles()};
  expect_guarded(y, "output");
  backward(y, to_device(as_dtype(dy, y.dtype()), device));
  for (size_t n = 0; n < inputs.size(); ++n) {
    const Tensor g = parameters ? given[n].grad() : gradients[n];
    EXPECT_TRUE(g.defined()) << "input " << n << " got no gradient";
    if (g.defined()) {
      expect_guarded(g, concat("gradient of input ", n));
    }
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

void expect_same_on_gpu(const TensorFunction& f, const Tensors& inputs) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensors rounded_inputs;
    for (const Tensor& x : inputs) {
      rounded_inputs.push_back(as_dtype(x, dtype));
    }
    const Tensor dy = random_tensor(f(rounded_inputs).shape(), 99);
    for (const bool parameters : {false, true}) {
      SCOPED_TRACE(concat(dtype,
                          ", first input of shape ",
                          inputs[0].shape(),
                          parameters ? ", parameters" : ", activations"));
      const OpResult expected = run_op(f, inputs, dy, dtype, parameters);
      poison_memory_for(dy, kGpu);
      for (const Tensor& x : inputs) {
        poison_memory_for(x, kGpu);
      }
      const OpResult actual = run_op(f, inputs, dy, dtype, parameters, kGpu);
      for (size_t n = 0; n < expected.size(); ++n) {
        EXPECT_TRUE(same_bits(with_one_nan(actual[n]), with_one_nan(expected[n])))
            << (n == 0 ? std::string("output") : concat("gradient of input ", n - 1));
      }
    }
  }
}

}  // namespace halftone::testing
