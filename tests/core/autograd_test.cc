#include "core/autograd.h"

#include <gtest/gtest.h>

namespace halftone {
namespace {

void write(const GradSink& sink, const std::vector<double>& values) {
  if (!sink) {
    return;
  }
  double* out = sink.buffer.data<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = values[i] + (sink.accumulate ? out[i] : 0.0);
  }
}

// y = a * b, elementwise, in double: the smallest op with two inputs.
Tensor multiply(const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  for (int64_t i = 0; i < a.numel(); ++i) {
    y.data<double>()[i] = a.data<double>()[i] * b.data<double>()[i];
  }
  record({a, b}, y, [a = a.detach(), b = b.detach()](const Tensor& dy, GradSink da, GradSink db) {
    std::vector<double> ga = dy.to_doubles();
    std::vector<double> gb = ga;
    for (size_t i = 0; i < ga.size(); ++i) {
      ga[i] *= b.data<double>()[i];
      gb[i] *= a.data<double>()[i];
    }
    write(da, ga);
    write(db, gb);
  });
  return y;
}

// y = a + b, whose gradient is handed on to either.
Tensor add(const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  for (int64_t i = 0; i < a.numel(); ++i) {
    y.data<double>()[i] = a.data<double>()[i] + b.data<double>()[i];
  }
  record({a, b}, y, [](const Tensor& dy, const GradSink& da, const GradSink& db) {
    for (const GradSink& sink : {da, db}) {
      if (sink && !sink.take(dy)) {
        write(sink, dy.to_doubles());
      }
    }
  });
  return y;
}

Tensor leaf(double value) {
  Tensor t = Tensor::from<double>({value}, {1});
  t.set_requires_grad();
  return t;
}

TEST(Autograd, FollowsTheProductRule) {
  const Tensor a = leaf(3);
  const Tensor b = leaf(5);
  backward(multiply(a, b));
  EXPECT_EQ(a.grad().item(), 5);
  EXPECT_EQ(b.grad().item(), 3);
}

TEST(Autograd, OneTensorAsBothInputsGetsBothGradients) {
  const Tensor a = leaf(3);
  backward(multiply(a, a));
  EXPECT_EQ(a.grad().item(), 6);
}

TEST(Autograd, ADiamondVisitsEveryNodeOnce) {
  const Tensor a = leaf(2);
  const Tensor b = multiply(a, a);               // a^2
  const Tensor y = multiply(b, multiply(b, b));  // a^6
  backward(y);
  EXPECT_EQ(a.grad().item(), 6 * 32);
}

TEST(Autograd, AGradientHandedOnIsCopiedBeforeItIsAddedTo) {
  const Tensor a = leaf(2);
  const Tensor b = leaf(3);
  const Tensor x = multiply(a, a);
  const Tensor w = multiply(b, b);
  const Tensor u = add(x, w);
  // The gradient of y is that of x and of u at first; then x gets another, and w has that of u.
  const Tensor y = add(x, u);
  const Tensor dy = Tensor::from<double>({1}, {1});
  backward(y, dy);
  EXPECT_EQ(a.grad().item(), 2 * 2 * 2);
  EXPECT_EQ(b.grad().item(), 2 * 3);
  EXPECT_EQ(dy.item(), 1);
}

TEST(Autograd, AGradientHandedOnTwiceToOneTensorIsAdded) {
  const Tensor a = leaf(2);
  const Tensor x = multiply(a, a);
  backward(add(add(x, x), x));
  EXPECT_EQ(a.grad().item(), 3 * 4);
}

TEST(Autograd, LeavesDoNotShareTheGradientOfTheirSum) {
  const Tensor a = leaf(2);
  const Tensor b = leaf(3);
  const Tensor dy = Tensor::from<double>({1}, {1});
  backward(add(a, b), dy);
  backward(add(a, multiply(b, b)), dy);
  EXPECT_EQ(a.grad().item(), 2);
  EXPECT_EQ(b.grad().item(), 1 + 6);
  EXPECT_EQ(dy.item(), 1);
}

TEST(Autograd, AGradientHandedOnTakesNoMemory) {
  MemoryPool& pool = memory_pool(Device{});
  const Tensor a = Tensor::zeros({1000}, DType::f64).set_requires_grad();
  Tensor y = multiply(a, a);
  for (int i = 0; i < 10; ++i) {
    y = add(y, multiply(y, y));  // as residual branches: y's other gradient is done when y's comes
  }
  pool.reset_peaks();
  const int64_t before = pool.stats().total.live_bytes;
  backward(y, Tensor::zeros({1000}, DType::f64));
  EXPECT_LE(pool.stats().total.peak_bytes - before, 4 * 8000);
}

TEST(Autograd, AccumulatesAcrossBackwardPassesUntilReset) {
  Tensor a = leaf(3);
  backward(multiply(a, leaf(1)));
  backward(multiply(a, leaf(10)));
  EXPECT_EQ(a.grad().item(), 11);
  EXPECT_TRUE(a.grad_written());
  a.reset_grad();
  EXPECT_FALSE(a.grad_written());
  backward(multiply(a, leaf(100)), 2.0f);
  EXPECT_EQ(a.grad().item(), 200);
}

TEST(Autograd, GradientsGoStraightIntoABoundBuffer) {
  Tensor a = leaf(3);
  const Tensor flat = Tensor::from<double>({-1, -1, -1}, {3}, MemoryCategory::gradients);
  a.bind_grad(flat.view({1}, {1}, 1));
  backward(multiply(a, leaf(4)));
  EXPECT_EQ(flat.to_doubles(), (std::vector<double>{-1, 4, -1}));
  Tensor half = Tensor::zeros({1}, DType::bf16);
  EXPECT_THROW(half.bind_grad(Tensor::zeros({1}, DType::bf16)), std::invalid_argument);
  half.bind_grad(Tensor::zeros({1}, DType::f32));
}

TEST(Autograd, RecordsNothingWhereNothingIsWanted) {
  const Tensor constant = Tensor::from<double>({2}, {1});
  EXPECT_FALSE(multiply(constant, constant).requires_grad());
  const Tensor a = leaf(3);
  {
    const NoGrad off;
    EXPECT_FALSE(recording());
    EXPECT_FALSE(multiply(a, a).requires_grad());
  }
  EXPECT_TRUE(recording());
  const Tensor y = multiply(a, constant);
  backward(y);
  EXPECT_EQ(a.grad().item(), 2);
  EXPECT_FALSE(constant.grad().defined());
}

TEST(Autograd, AGraphIsWalkedOnce) {
  const Tensor a = leaf(3);
  const Tensor b = multiply(a, a);
  const Tensor y = multiply(b, leaf(1));
  backward(y);
  EXPECT_THROW(backward(y), std::invalid_argument);
  EXPECT_THROW(backward(multiply(b, leaf(1))), std::invalid_argument);  // b's part is gone
  EXPECT_THROW(backward(a), std::invalid_argument);                     // a leaf has no graph
}

TEST(Autograd, LongChainsNeedNoDeepStack) {
  const Tensor a = leaf(1);
  Tensor y = a;
  for (int i = 0; i < 200000; ++i) {
    y = multiply(y, y.detach());
  }
  Tensor unused = y;  // the second chain is dropped without ever being walked
  for (int i = 0; i < 100000; ++i) {
    unused = multiply(unused, unused);
  }
  unused = Tensor();
  backward(y);
  EXPECT_EQ(a.grad().item(), 1);
}

TEST(Autograd, ActivationsAreFreedWhileTheWalkGoesOn) {
  MemoryPool& pool = memory_pool(Device{});
  auto& stats = pool.stats();
  const Tensor a = Tensor::zeros({1000}, DType::f64).set_requires_grad();
  const auto peak_of_chain = [&](int length) {
    Tensor y = a;
    for (int i = 0; i < length; ++i) {
      y = multiply(y, y);
    }
    pool.reset_peaks();
    const int64_t before = stats.total.live_bytes;
    const Tensor dy = Tensor::zeros({1000}, DType::f64);
    backward(y, dy);
    return stats.total.peak_bytes - before;
  };
  EXPECT_LE(peak_of_chain(40),
            4 * 8000);  // dy and at most a few gradients beside what the forward pass left
}

TEST(Autograd, TheGradientMustFitTheTensor) {
  const Tensor a = leaf(3);
  EXPECT_THROW(backward(multiply(a, a), Tensor::zeros({2}, DType::f64)), std::invalid_argument);
  EXPECT_THROW(backward(multiply(a, a), Tensor::zeros({1}, DType::f32)), std::invalid_argument);
  const Tensor pair = Tensor::zeros({2}, DType::f64).set_requires_grad();
  EXPECT_THROW(backward(multiply(pair, pair)), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
