#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/convert.h"
#include "core/parallel.h"
#include "tests/support/close.h"
#include "tests/support/gradcheck.h"

namespace halftone {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::random_tensor;
using testing::Tensors;

LinearPrecision precision_of(const std::string& recipe) {
  return resolve_linear(parse_recipe(recipe), "layer", false);
}

// A normal random leaf, its values exact in dtype.
Tensor random_leaf(const Shape& shape, DType dtype, uint32_t seed) {
  const std::vector<double> values = random_tensor(shape, seed).to_doubles();
  const std::vector<float> rounded(values.begin(), values.end());
  Tensor t = Tensor::empty(shape, dtype);
  if (dtype == DType::bf16) {
    convert(rounded.data(), rounded.size(), t.data<BFloat16>());
  } else if (dtype == DType::f16) {
    convert(rounded.data(), rounded.size(), t.data<Half>());
  } else {
    std::copy(rounded.begin(), rounded.end(), t.data<float>());
  }
  return t.set_requires_grad();
}

TEST(Linear, MultipliesByTheTransposedWeightsAndAddsTheBias) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor w = Tensor::from<float>({1, 0, 0, 1, 1, 1}, {3, 2});
  const Tensor b = Tensor::from<float>({10, 20, 30}, {3});
  EXPECT_EQ(linear(x, w, b, precision_of("fp32")).to_doubles(),
            (std::vector<double>{11, 22, 33, 13, 24, 37}));
  EXPECT_EQ(linear(x, w, Tensor(), precision_of("fp32"), nullptr, Activation::relu).to_doubles(),
            (std::vector<double>{1, 2, 3, 3, 4, 7}));
}

TEST(Linear, GradientsMatchCentralDifferences) {
  const LinearPrecision fp32 = precision_of("fp32");
  for (const auto& [rows, in, out] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {3, 7, 5}, {17, 4, 33}}) {
    for (const Activation activation : {Activation::none, Activation::gelu}) {
      EXPECT_TRUE(gradcheck(
          [&](const Tensors& in_) {
            return linear(in_[0], in_[1], in_[2], fp32, nullptr, activation);
          },
          {random_tensor({rows, in}, 1), random_tensor({out, in}, 2), random_tensor({out}, 3)}));
    }
  }
  // Away from the kink, and with leading dimensions.
  EXPECT_TRUE(gradcheck(
      [&](const Tensors& in) {
        return linear(in[0], in[1], Tensor(), fp32, nullptr, Activation::relu);
      },
      {random_tensor({2, 3, 4}, 4), random_tensor({3, 4}, 5)}));
}

// x = s q as double, [rows, columns].
std::vector<double> operand(const Tensor& x,
                            int k_axis,
                            const OperandPrecision& p,
                            const QuantizeOptions& options = {}) {
  return dequantize(quantize(x, k_axis, p, options)).to_doubles();
}

// sum over k of a(m, k) b(k, n), and the sum of magnitudes that bounds its rounding errors.
struct Product {
  std::vector<double> value;
  double magnitude = 0.0;
};
template <class A, class B>
Product product(int64_t M, int64_t N, int64_t K, A a, B b) {
  Product p;
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (int64_t k = 0; k < K; ++k) {
        sum += a(m, k) * b(k, n);
        magnitude += std::fabs(a(m, k) * b(k, n));
      }
      p.value.push_back(sum);
      p.magnitude = std::max(p.magnitude, magnitude);
    }
  }
  return p;
}

TEST(Linear, RefreshedWeightsStayWhereTheyWere) {
  for (const char* name : {"fp8-tensor", "fp8-row", "fp8-block", "mxfp8", "nvfp4"}) {
    const LinearPrecision p = resolve_linear(parse_recipe(name), "layer", false);
    LinearState state("layer", p, {}, "", Device{});
    // Small: scales and values share size classes.
    const Tensor w = random_leaf({64, 64}, DType::f32, 1).detach();
    state.refresh(w);
    const auto addresses = [&] {
      return std::array{state.w_forward().values.raw(),
                        state.w_forward().scales.raw(),
                        state.w_dgrad().values.raw(),
                        state.w_dgrad().scales.raw()};
    };
    const auto before = addresses();
    state.refresh(w);
    EXPECT_EQ(addresses(), before) << name;
    state.refresh(w);
    EXPECT_EQ(addresses(), before) << name;
  }
}

TEST(Linear, EveryRecipesProductsMatchDoubleOnTheSameRoundedOperands) {
  const int64_t rows = 67;
  const int64_t in = 131;
  const int64_t out = 35;
  std::vector<std::string> recipes = preset_names();
  recipes.insert(recipes.end(),
                 {"e3m4-block",
                  "fp8-block,scale=e8m0",
                  "e5m12-none",
                  "fp8-tensor,grad=bf16",
                  "fp8-block,block=32"});
  for (const std::string& name : recipes) {
    const Recipe recipe = parse_recipe(name);
    const LinearPrecision p = resolve_linear(recipe, "layer", false);
    LinearState state("layer", p, {}, "", Device{});
    const Tensor x = random_leaf({rows, in}, recipe.act, 1);
    Tensor w = random_leaf({out, in}, recipe.act, 2);
    const Tensor dy = random_leaf({rows, out}, recipe.act, 3);
    state.refresh(w);
    const Tensor y = linear(x, w, Tensor(), p, &state);
    backward(y, dy.detach());

    // Delayed scaling has an empty history here, so it goes by the current amax, like tensor
    // scaling.
    const auto current = [](OperandPrecision o) {
      o.scaling = o.scaling == Scaling::delayed ? Scaling::tensor : o.scaling;
      o.round = Rounding::nearest;
      return o;
    };
    const auto tf32 = [&](std::vector<double> v) {  // which the GEMM rounds itself
      for (double& value : v) {
        value = p.forward.a.format == kTf32 ? round_to(kTf32, static_cast<float>(value)) : value;
      }
      return v;
    };
    const auto at = [](const std::vector<double>& v, int64_t columns) {
      return
          [&v, columns](int64_t r, int64_t c) { return v[static_cast<size_t>(r * columns + c)]; };
    };
    const auto check = [&](const Tensor& actual,
                           const Product& expected,
                           int64_t K,
                           const char* what) {
      EXPECT_TRUE(all_close(actual.to_doubles(),
                            expected.value,
                            testing::summed(K + 2, expected.magnitude, DType::f32, actual.dtype())))
          << name << " " << what;
    };
    const std::vector<double> x_in = tf32(operand(x, 1, current(p.forward.a)));
    const std::vector<double> w_in = tf32(operand(w, 1, current(p.forward.b)));
    const auto xf = at(x_in, in);
    const auto wf = at(w_in, in);
    check(y,
          product(rows, out, in, xf, [&](int64_t k, int64_t n) { return wf(n, k); }),
          in,
          "forward");
    const std::vector<double> dy_out = tf32(operand(dy, 1, current(p.dgrad.a)));
    const std::vector<double> w_out = tf32(operand(w, 0, current(p.dgrad.b)));
    check(x.grad(), product(rows, in, out, at(dy_out, out), at(w_out, in)), out, "dgrad");
    const std::vector<double> dy_rows = tf32(operand(dy, 0, current(p.wgrad.a)));
    const std::vector<double> x_rows = tf32(operand(x, 0, current(p.wgrad.b)));
    const auto dyt = at(dy_rows, out);
    check(w.grad(),
          product(
              out, in, rows, [&](int64_t m, int64_t k) { return dyt(k, m); }, at(x_rows, in)),
          rows,
          "wgrad");
  }
}

TEST(Linear, GradientsAccumulateWhereTheyAreWantedTwice) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const LinearPrecision p = precision_of(dtype == DType::f32    ? "fp32"
                                           : dtype == DType::bf16 ? "bf16"
                                                                  : "fp16");
    const Tensor x = random_leaf({5, 8}, dtype, 1);
    const Tensor w = random_leaf({4, 8}, dtype, 2);
    const Tensor b = random_leaf({4}, dtype, 3);
    const Tensor dy = random_leaf({5, 4}, dtype, 4).detach();
    const auto walk = [&] { backward(linear(x, w, b, p), dy); };
    walk();
    const std::vector<double> once = w.grad().to_doubles();
    const std::vector<double> bias_once = b.grad().to_doubles();
    EXPECT_EQ(w.grad().dtype(), DType::f32);
    walk();
    const std::vector<double> twice = w.grad().to_doubles();
    const std::vector<double> bias_twice = b.grad().to_doubles();
    for (size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(twice[i], 2 * once[i]);
    }
    for (size_t i = 0; i < bias_once.size(); ++i) {
      EXPECT_EQ(bias_twice[i], 2 * bias_once[i]);
    }
  }
}

TEST(Linear, TheInputsGradientAccumulatesThroughSixteenBits) {
  const LinearPrecision p = precision_of("bf16");
  const Tensor input = random_leaf({5, 8}, DType::bf16, 1);
  const Tensor identity = [] {
    Tensor w = Tensor::zeros({8, 8}, DType::bf16);
    for (int64_t i = 0; i < 8; ++i) {
      w.data<BFloat16>()[i * 9] = to_bf16(1.0f);
    }
    return w;
  }();
  const Tensor x = linear(input, identity, Tensor(), p);  // an activation: its gradient is bf16
  const Tensor w = random_leaf({8, 8}, DType::bf16, 2);
  const Tensor both = linear(linear(x, w, Tensor(), p), identity, Tensor(), p);
  backward(both, random_leaf({5, 8}, DType::bf16, 5).detach());
  for (const double g : input.grad().to_doubles()) {
    EXPECT_TRUE(std::isfinite(g));
  }
}

TEST(Linear, TheSameBitsForAnyNumberOfThreads) {
  const int before = num_threads();
  for (const char* recipe : {"fp32", "bf16", "fp8-block"}) {
    const LinearPrecision p = precision_of(recipe);
    const DType act = parse_recipe(recipe).act;
    std::vector<std::vector<double>> results[2];
    for (const int threads : {1, 5}) {
      set_num_threads(threads);
      const Tensor x = random_leaf({130, 200}, act, 1);
      const Tensor w = random_leaf({150, 200}, act, 2);
      const Tensor b = random_leaf({150}, act, 3);
      const Tensor y = linear(x, w, b, p, nullptr, Activation::gelu);
      backward(y, random_leaf({130, 150}, act, 4).detach());
      results[threads == 5] = {
          y.to_doubles(), x.grad().to_doubles(), w.grad().to_doubles(), b.grad().to_doubles()};
    }
    EXPECT_EQ(results[0], results[1]) << recipe;
  }
  set_num_threads(before);
}

TEST(Linear, DelayedScalingObservesTrainingAndNotEvaluation) {
  const LinearPrecision p = precision_of("fp8-delayed");
  LinearState state("layer", p, {}, "", Device{});
  const Tensor x = random_leaf({4, 8}, DType::bf16, 1);
  const Tensor w = random_leaf({4, 8}, DType::bf16, 2);
  state.refresh(w);
  ASSERT_EQ(state.histories().size(), 3u);
  {
    const NoGrad evaluation;
    linear(x, w, Tensor(), p, &state);
  }
  state.end_step();
  EXPECT_EQ(state.histories()[0]->pushed.item(), 0);  // x was only evaluated
  EXPECT_EQ(state.histories()[1]->pushed.item(), 1);  // the weights were refreshed
  backward(linear(x, w, Tensor(), p, &state), random_leaf({4, 4}, DType::bf16, 3).detach());
  state.end_step();
  EXPECT_EQ(state.histories()[0]->pushed.item(), 1);
  EXPECT_EQ(state.histories()[2]->pushed.item(), 1);
}

TEST(Linear, ANonFiniteActivationReachesTheOutputAndTheGradients) {
  for (const char* recipe : {"bf16", "fp8-tensor", "fp8-block", "mxfp4", "nvfp4", "fp8-delayed"}) {
    const LinearPrecision p = precision_of(recipe);
    LinearState state("layer", p, {}, "", Device{});
    const Tensor x = random_leaf({3, 40}, DType::bf16, 1);
    const Tensor w = random_leaf({5, 40}, DType::bf16, 2);
    x.data<BFloat16>()[7] = BFloat16{0x7f80};  // infinity in row 0
    state.refresh(w);
    const Tensor y = linear(x, w, Tensor(), p, &state);
    backward(y, random_leaf({3, 5}, DType::bf16, 3).detach());
    EXPECT_FALSE(std::isfinite(y.to_doubles()[0])) << recipe;
    EXPECT_FALSE(std::isfinite(w.grad().to_doubles()[7])) << recipe;
  }
}

TEST(Linear, SaysWhatDoesNotFit) {
  const LinearPrecision p = precision_of("fp32");
  const auto zeros = [](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::zeros(shape, dtype);
  };
  EXPECT_THROW(linear(zeros({2, 3}), zeros({4, 5}), Tensor(), p), std::invalid_argument);
  EXPECT_THROW(linear(zeros({2, 3}), zeros({3}), Tensor(), p), std::invalid_argument);
  EXPECT_THROW(linear(zeros({2, 3}), zeros({4, 3}), zeros({3}), p), std::invalid_argument);
  EXPECT_THROW(linear(zeros({2, 3}), zeros({4, 3}, DType::bf16), Tensor(), p),
               std::invalid_argument);
  EXPECT_THROW(linear(zeros({2, 3}, DType::bf16),
                      zeros({4, 3}, DType::bf16),
                      Tensor(),
                      precision_of("fp8-delayed")),
               std::invalid_argument);
}

TEST(Cases, FC58_EmptyLayersForwardAndBackward) {
  for (const char* recipe : {"fp32", "bf16", "fp16", "fp8-tensor", "fp8-block", "mxfp8", "nvfp4"}) {
    const LinearPrecision p = precision_of(recipe);
    const DType act = parse_recipe(recipe).act;
    const auto run = [&](int64_t rows, int64_t in, int64_t out, bool has_bias) {
      const Tensor x = random_leaf({rows, in}, act, 1);
      const Tensor w = random_leaf({out, in}, act, 2);
      const Tensor b = has_bias ? random_leaf({out}, act, 3) : Tensor();
      const Tensor y = linear(x, w, b, p);
      EXPECT_EQ(y.shape(), (Shape{rows, out})) << recipe;
      for (int64_t i = 0; i < y.numel() && in == 0; ++i) {  // no products: the bias, or zero
        const double expected = has_bias ? b.to_doubles()[static_cast<size_t>(i % out)] : 0.0;
        EXPECT_EQ(y.to_doubles()[static_cast<size_t>(i)], expected) << recipe;
      }
      backward(y, random_leaf({rows, out}, act, 4).detach());
      const auto zeros = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n), 0.0); };
      if (rows == 0 || in == 0) {
        EXPECT_EQ(w.grad().to_doubles(), zeros(w.numel())) << recipe;
      }
      if (out == 0) {
        EXPECT_EQ(x.grad().to_doubles(), zeros(x.numel())) << recipe;
      }
      if (rows == 0 && has_bias) {
        EXPECT_EQ(b.grad().to_doubles(), zeros(out)) << recipe;
      }
    };
    for (const bool has_bias : {false, true}) {
      run(0, 6, 4, has_bias);
      run(3, 6, 0, has_bias);
      run(3, 0, 4, has_bias);
      run(0, 0, 0, has_bias);
    }
  }
}

}  // namespace
}  // namespace halftone
