// gradcheck: an op's gradients against central differences, in double. Copy a call to test your own
// op:
//   EXPECT_TRUE(gradcheck([](const Tensors& in) { return softplus(in[0]); }, {x}));
// Keep inputs off kinks (relu at 0): within 2e-4 (1 + |x|) of one the differences mean nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "core/autograd.h"

namespace halftone::testing {

using Tensors = std::vector<Tensor>;
using TensorFunction = std::function<Tensor(const Tensors&)>;

/// Normal random numbers as an f64 tensor.
inline Tensor random_tensor(const Shape& shape, uint32_t seed, double scale = 1.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  std::generate(values.begin(), values.end(), [&] { return normal(engine); });
  return Tensor::from(values, shape);
}

/// A copy of an f64 tensor that wants a gradient.
inline Tensor leaf_of(const Tensor& x) {
  return Tensor::from(x.to_doubles(), x.shape()).set_requires_grad();
}

/// Compares the gradients of sum(w * f(inputs)), w random, for every element of every input (f64)
/// with central differences of fourth order: |difference| <= tolerance * (|gradient| + 1% of the
/// input's largest gradient). Then walks f a second time, which must double every gradient exactly.
inline ::testing::AssertionResult gradcheck(const TensorFunction& f,
                                            const Tensors& inputs,
                                            double tolerance = 1e-6) {
  Tensors leaves;
  std::transform(inputs.begin(), inputs.end(), std::back_inserter(leaves), leaf_of);
  const Tensor y = f(leaves);
  const Tensor w = random_tensor(y.shape(), 12345);
  backward(y, w);

  for (size_t n = 0; n < leaves.size(); ++n) {
    if (!leaves[n].grad_written()) {
      return ::testing::AssertionFailure() << "input " << n << " got no gradient";
    }
    const NoGrad off;
    const std::vector<double> weights = w.to_doubles();
    double* x = leaves[n].data<double>();
    std::vector<double> expected(static_cast<size_t>(leaves[n].numel()));
    for (size_t i = 0; i < expected.size(); ++i) {
      const double before = x[i];
      const double h = 1e-4 * (1.0 + std::fabs(before));
      const auto difference = [&](double step) {  // sum w (f(x + step) - f(x - step))
        x[i] = before + step;
        const std::vector<double> above = f(leaves).to_doubles();
        x[i] = before - step;
        const std::vector<double> below = f(leaves).to_doubles();
        x[i] = before;
        double sum = 0.0;
        for (size_t k = 0; k < above.size(); ++k) {
          sum += weights[k] * (above[k] - below[k]);
        }
        return sum;
      };
      expected[i] = (8.0 * difference(h) - difference(2.0 * h)) / (12.0 * h);
    }
    double largest = 0.0;
    for (const double g : expected) {
      largest = std::max(largest, std::fabs(g));
    }
    const std::vector<double> actual = leaves[n].grad().to_doubles();
    for (size_t i = 0; i < expected.size(); ++i) {
      const double allowed = tolerance * (std::fabs(expected[i]) + 0.01 * largest) + 1e-11;
      if (!(std::fabs(actual[i] - expected[i]) <= allowed)) {
        return ::testing::AssertionFailure()
               << "input " << n << ", element " << i << " of shape " << leaves[n].shape()
               << ": gradient " << actual[i] << ", central difference " << expected[i];
      }
    }
  }

  Tensors once;
  for (const Tensor& leaf : leaves) {
    once.push_back(Tensor::from(leaf.grad().to_doubles(), leaf.shape()));
  }
  backward(f(leaves), w);
  for (size_t n = 0; n < leaves.size(); ++n) {
    const std::vector<double> first = once[n].to_doubles();
    const std::vector<double> second = leaves[n].grad().to_doubles();
    for (size_t i = 0; i < first.size(); ++i) {
      if (!(second[i] == 2.0 * first[i])) {
        return ::testing::AssertionFailure()
               << "input " << n << ", element " << i << ": " << second[i]
               << " after two passes, expected twice " << first[i];
      }
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace halftone::testing
