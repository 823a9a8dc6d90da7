// The worked example of adding an op: softsign, y = x / (1 + |x|), written in one page outside
// ops/. It needs no registration: a function computes the output and records how gradients flow
// back. The program runs on the CPU: it compares that gradient with central differences, then
// trains a network whose activation it is. README shows how an op gets a CUDA kernel.
#include <cmath>
#include <cstdio>

#include "core/philox.h"
#include "examples/common_flags.h"
#include "examples/report.h"
#include "ops/add/add.h"
#include "ops/linear/linear.h"
#include "ops/mul/mul.h"
#include "ops/op.h"
#include "ops/reduce/reduce.h"

namespace halftone {
namespace {

/// y = x / (1 + |x|), elementwise, in x's dtype; computed in FP32 (FP64 for f64) and rounded once.
/// Keeps x for backward.
Tensor softsign(const Tensor& x) {
  Tensor y = map("softsign", x, [](auto v) { return v / (1 + std::abs(v)); });
  record({x}, y, [x = x.detach()](const Tensor& dy, const GradSink& dx) {
    map_gradient(x, dy, dx, [](auto v) {
      const auto d = 1 + std::abs(v);
      return 1 / (d * d);
    });
  });
  return y;
}

// The largest error of the gradient of sum(softsign(x)) against central differences, in double.
double gradient_error() {
  const std::vector<double> points{-3.0, -0.5, 0.25, 1.0, 40.0};
  const Tensor x = Tensor::from(points, {5}).set_requires_grad();
  backward(sum(softsign(x)));
  const std::vector<double> gradient = x.grad().to_doubles();
  const auto f = [](double v) { return softsign(Tensor::from<double>({v}, {1})).item(); };
  double worst = 0.0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double h = 1e-5;
    worst =
        std::max(worst, std::fabs(gradient[i] - (f(points[i] + h) - f(points[i] - h)) / (2 * h)));
  }
  return worst;
}

// Uniform in [-bound, bound), a parameter.
Tensor parameter(const Shape& shape, float bound, uint64_t seed, std::string_view path) {
  const RandomStream draws{philox_key(seed, path)};
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = bound * (2.0f * uniform(draws.draw(i)) - 1.0f);
  }
  return Tensor::from(values, shape, MemoryCategory::weights).set_requires_grad();
}

// Fits y = sin(3 x) on [-1, 1) with one hidden layer of softsign, by plain gradient descent.
double fit_sine(int64_t steps, uint64_t seed, const LinearPrecision& precision) {
  const int64_t n = 128;
  const int64_t hidden = 32;
  const Tensor x = Tensor::empty({n, 1}, DType::f32);
  const Tensor minus_target = Tensor::empty({n, 1}, DType::f32);
  for (int64_t i = 0; i < n; ++i) {
    x.data<float>()[i] = static_cast<float>(2 * i) / static_cast<float>(n) - 1.0f;
    minus_target.data<float>()[i] = -std::sin(3.0f * x.data<float>()[i]);
  }
  std::vector<Tensor> parameters{parameter({hidden, 1}, 2.0f, seed, "fc1.weight"),
                                 parameter({hidden}, 1.0f, seed, "fc1.bias"),
                                 parameter({1, hidden}, 0.2f, seed, "fc2.weight"),
                                 parameter({1}, 0.2f, seed, "fc2.bias")};
  double loss_value = 0.0;
  for (int64_t step = 1; step <= steps; ++step) {
    const Tensor h = softsign(linear(x, parameters[0], parameters[1], precision));
    const Tensor error = add(linear(h, parameters[2], parameters[3], precision), minus_target);
    const Tensor loss = mean(mul(error, error));
    backward(loss);
    for (Tensor& p : parameters) {
      for (int64_t i = 0; i < p.numel(); ++i) {
        p.data<float>()[i] -= 0.1f * p.grad().data<float>()[i];
      }
      p.reset_grad();
    }
    loss_value = loss.item();
    if (step == 1 || step % std::max<int64_t>(1, steps / 5) == 0) {
      std::printf("step %lld/%lld  loss %.5f\n",
                  static_cast<long long>(step),
                  static_cast<long long>(steps),
                  loss_value);
    }
  }
  return loss_value;
}

int run(const Flags& flags) {
  const auto seed = static_cast<uint64_t>(flags.integer("seed"));
  const Recipe recipe = parse_recipe("fp32");
  print_first_lines(seed, Device{}, "softsign has no CUDA kernel", recipe);
  std::printf("softsign: gradient within %.1e of central differences\n", gradient_error());
  const double loss = fit_sine(flags.integer("steps"), seed, resolve_linear(recipe, "fc", false));
  std::printf("done: fitted sin(3x) with mean squared error %.5f\n", loss);
  return 0;
}

}  // namespace
}  // namespace halftone

int main(int argc, char** argv) {
  halftone::Flags flags("custom_op", "the worked example of adding an op");
  flags.add({.name = "steps",
             .kind = halftone::Flag::Kind::integer,
             .default_value = "2000",
             .help = "steps of gradient descent",
             .low = 1,
             .high = 1e9});
  flags.add({.name = "seed",
             .kind = halftone::Flag::Kind::integer,
             .default_value = "1",
             .help = "of the initial weights",
             .low = 0,
             .high = 9e18});
  return halftone::run_main(flags, argc, argv, [&] { return halftone::run(flags); });
}
