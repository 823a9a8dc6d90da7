#include "ops/quantize/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/convert.h"
#include "core/parallel.h"

namespace halftone {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

OperandPrecision precision_of(const std::string& recipe, bool weight = false) {
  const LinearPrecision p = resolve_linear(parse_recipe(recipe), "layer", false);
  return weight ? p.forward.b : p.forward.a;
}

Tensor random_matrix(int64_t rows, int64_t columns, unsigned seed, float spread = 4.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-spread, spread);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (float& v : values) {
    v = normal(generator) * std::exp2(exponent(generator));
  }
  return Tensor::from(values, {rows, columns});
}

// The scale of one block, from the definition, by a plain loop over the elements that share it.
float scale_by_loop(const Tensor& x,
                    const QuantizedMatrix& q,
                    const OperandPrecision& p,
                    int64_t row,
                    int64_t column) {
  const auto same_block = [&](int64_t a, int64_t b, int64_t block) {
    return a / block == b / block;
  };
  const int64_t block_rows = q.k_axis == 0 ? q.block_k : q.block_mn;
  const int64_t block_columns = q.k_axis == 0 ? q.block_mn : q.block_k;
  float amax = 0.0f;
  float whole = 0.0f;
  for (int64_t r = 0; r < x.size(0); ++r) {
    for (int64_t c = 0; c < x.size(1); ++c) {
      const float v = x.data<float>()[r * x.size(1) + c];
      whole = std::fabs(v) > whole ? std::fabs(v) : whole;
      if (same_block(r, row, block_rows) && same_block(c, column, block_columns)) {
        amax = std::fabs(v) > amax ? std::fabs(v) : amax;
      }
    }
  }
  const float max = static_cast<float>(p.format.max_finite());
  if (p.scaling == Scaling::nvfp4) {
    const float g = std::fmax(whole / 2688.0f, 0x1p-126f);
    const float b = std::fmax(decode(kE4M3, encode(kE4M3, amax / 6.0f / g)), 0x1p-9f);
    return std::fmax(b * g, 0x1p-126f);
  }
  const float s = std::fmax(amax / max, 0x1p-126f);
  return p.scale == ScaleRule::fp32
             ? s
             : std::exp2(std::ceil(std::log2(s)));  // the inputs keep log2 off exact powers
}

float scale_of(const QuantizedMatrix& q, int64_t row, int64_t column) {
  const GemmOperand a = q.as_a();
  const int64_t kept = q.k_axis == 1 ? row : column;
  const int64_t k = q.k_axis == 1 ? column : row;
  return a.scales.data[kept / a.scales.block_mn * a.scales.stride_mn +
                       k / a.scales.block_k * a.scales.stride_k];
}

TEST(Quantize, EveryScalingMatchesALoopOverItsDefinition) {
  for (const char* recipe : {"fp8-tensor",
                             "fp8-row",
                             "fp8-block",
                             "mxfp8",
                             "mxfp6",
                             "mxfp4",
                             "nvfp4",
                             "e3m4-block",
                             "fp8-block,block=32"}) {
    for (const bool weight : {false, true}) {
      const OperandPrecision p = precision_of(recipe, weight);
      for (const auto& [rows, columns] :
           {std::pair<int64_t, int64_t>{1, 1}, {7, 130}, {129, 129}, {130, 37}}) {
        const Tensor x = random_matrix(rows, columns, 3);
        for (const int k_axis : {0, 1}) {
          const QuantizedMatrix q = quantize(x, k_axis, p);
          const Tensor y = dequantize(q);
          for (int64_t i = 0; i < x.numel(); i += 1 + x.numel() / 97) {
            const int64_t r = i / columns;
            const int64_t c = i % columns;
            const float s = scale_by_loop(x, q, p, r, c);
            ASSERT_EQ(scale_of(q, r, c), s) << recipe << " " << weight << " [" << rows << ", "
                                            << columns << "] at " << r << ", " << c;
            const float expected = round_to(p.format, x.data<float>()[i] * (1.0f / s)) * s;
            ASSERT_EQ(y.data<float>()[i], expected) << recipe << " at " << r << ", " << c;
          }
        }
      }
    }
  }
}

TEST(Quantize, ReadsSixteenBitSourcesAsTheirValues) {
  const Tensor x = random_matrix(33, 140, 5);
  Tensor half = Tensor::empty(x.shape(), DType::bf16);
  convert(x.data<float>(), static_cast<size_t>(x.numel()), half.data<BFloat16>());
  Tensor widened = Tensor::empty(x.shape(), DType::f32);
  convert(half.data<BFloat16>(), static_cast<size_t>(x.numel()), widened.data<float>());
  const OperandPrecision p = precision_of("fp8-block");
  EXPECT_EQ(dequantize(quantize(half, 1, p)).to_doubles(),
            dequantize(quantize(widened, 1, p)).to_doubles());
}

TEST(Quantize, ValuesStoredInTheFormatAreNotCopied) {
  const Tensor x = Tensor::zeros({3, 4}, DType::bf16);
  EXPECT_EQ(quantize(x, 1, precision_of("bf16")).values.raw(), x.raw());
  const Tensor f = Tensor::zeros({3, 4}, DType::f32);
  EXPECT_EQ(quantize(f, 1, precision_of("tf32")).values.raw(), f.raw());
  EXPECT_EQ(quantize(f, 1, precision_of("bf16")).values.dtype(), DType::bf16);
}

TEST(Quantize, TheResultDoesNotDependOnThreads) {
  const Tensor x = random_matrix(300, 257, 9);
  const int before = num_threads();
  for (const char* recipe : {"fp8-tensor", "fp8-block", "nvfp4", "fp8-row"}) {
    const OperandPrecision p = precision_of(recipe);
    set_num_threads(1);
    const std::vector<double> one = dequantize(quantize(x, 0, p)).to_doubles();
    set_num_threads(5);
    EXPECT_EQ(one, dequantize(quantize(x, 0, p)).to_doubles()) << recipe;
  }
  set_num_threads(before);
}

TEST(Quantize, StochasticRoundingIsUnbiasedAndRepeats) {
  OperandPrecision p = precision_of("e4m3-none");
  p.round = Rounding::stochastic;
  const int64_t n = 40000;
  const Tensor x = Tensor::from(std::vector<float>(n, 1.03125f),
                                {n / 8, 8});  // a quarter of the way from 1 to 1.125
  QuantizeOptions options;
  options.random = {.seed = 7, .counters = Tensor::from<int64_t>({3, 0}, {2})};
  options.purpose = "layer/x";
  const std::vector<double> first = dequantize(quantize(x, 1, p, options)).to_doubles();
  EXPECT_EQ(first, dequantize(quantize(x, 1, p, options)).to_doubles());
  int64_t up = 0;
  for (const double v : first) {
    ASSERT_TRUE(v == 1.0 || v == 1.125);
    up += v == 1.125;
  }
  EXPECT_NEAR(static_cast<double>(up) / n, 0.25, 5 * std::sqrt(0.25 * 0.75 / n));
  options.random.counters.data<int64_t>()[0] = 4;
  EXPECT_NE(first, dequantize(quantize(x, 1, p, options)).to_doubles());
}

TEST(Quantize, OneQuantisationServesBothAxesWhereBlocksAreSquare) {
  const Tensor w = random_matrix(200, 300, 11);
  const OperandPrecision p = precision_of("fp8-block", true);
  ASSERT_TRUE(serves_both_axes(p));
  EXPECT_FALSE(serves_both_axes(precision_of("fp8-block")));
  const QuantizedMatrix other = quantize(w, 1, p).along(0);
  const QuantizedMatrix direct = quantize(w, 0, p);
  EXPECT_EQ(dequantize(other).to_doubles(), dequantize(direct).to_doubles());
  EXPECT_EQ(other.scales.to_doubles(), direct.scales.to_doubles());
  EXPECT_THROW(quantize(w, 1, precision_of("fp8-block")).along(0), std::invalid_argument);
}

class Delayed : public ::testing::Test {
 protected:
  float scale_for(float amax, bool observe) {
    const Tensor x = Tensor::from<float>({amax, 0.0f, -amax / 2}, {1, 3});
    QuantizeOptions options;
    options.history = &history_;
    options.observe = observe;
    return quantize(x, 1, precision_of("fp8-delayed"), options).scales.data<float>()[0];
  }
  AmaxHistory history_ = make_amax_history(3, Device{});
};

TEST_F(Delayed, AnEmptyHistoryUsesTheCurrentAmax) { EXPECT_EQ(scale_for(448.0f, true), 1.0f); }

TEST_F(Delayed, TheLargestOfTheHistoryCounts) {
  for (const float amax : {448.0f, 896.0f, 224.0f}) {
    scale_for(amax, true);
    push_amax(history_);
  }
  EXPECT_EQ(scale_for(1.0f, false), 2.0f);
  scale_for(448.0f, true);
  push_amax(history_);  // takes the place of the first 448
  EXPECT_EQ(scale_for(1.0f, false), 2.0f);
  scale_for(448.0f, true);
  push_amax(history_);  // takes the place of 896
  EXPECT_EQ(scale_for(1.0f, false), 1.0f);
}

TEST_F(Delayed, OnePushAStepWithTheLargestOfItsMicroBatches) {
  scale_for(448.0f, true);
  scale_for(896.0f, true);
  scale_for(448.0f, true);
  EXPECT_EQ(history_.pushed.item(), 0);
  push_amax(history_);
  EXPECT_EQ(history_.pushed.item(), 1);
  EXPECT_EQ(scale_for(1.0f, false), 2.0f);
}

TEST_F(Delayed, EvaluationAndNonFiniteValuesNeverJoin) {
  scale_for(448.0f, false);
  push_amax(history_);
  EXPECT_EQ(history_.pushed.item(), 0);
  scale_for(448.0f, true);
  push_amax(history_);
  EXPECT_TRUE(std::isnan(scale_for(kInfinity, true)));
  EXPECT_TRUE(std::isnan(scale_for(kNaN, true)));
  push_amax(history_);
  EXPECT_EQ(history_.pushed.item(), 1);
  EXPECT_EQ(scale_for(1.0f, false), 1.0f);
}

TEST(Quantize, SaysWhatIsMissing) {
  const Tensor x = Tensor::zeros({4, 4}, DType::f32);
  EXPECT_THROW(quantize(Tensor::zeros({4}, DType::f32), 1, precision_of("fp8-row")),
               std::invalid_argument);
  EXPECT_THROW(quantize(x, 2, precision_of("fp8-row")), std::invalid_argument);
  EXPECT_THROW(quantize(x, 1, precision_of("fp8-delayed")), std::invalid_argument);
  EXPECT_THROW(quantize(x, 1, precision_of("fp8-row,round=stochastic")), std::invalid_argument);
  EXPECT_THROW(quantize(Tensor::zeros({4, 4}, DType::i32), 1, precision_of("fp8-row")),
               std::invalid_argument);
}

TEST(Quantize, EmptyMatricesStayEmpty) {
  for (const char* recipe : {"fp8-tensor", "fp8-row", "fp8-block", "nvfp4", "e4m3-none"}) {
    for (const int k_axis : {0, 1}) {
      EXPECT_EQ(
          quantize(Tensor::zeros({0, 5}, DType::f32), k_axis, precision_of(recipe)).values.numel(),
          0);
      EXPECT_EQ(
          quantize(Tensor::zeros({5, 0}, DType::f32), k_axis, precision_of(recipe)).values.numel(),
          0);
    }
  }
}

const char* const kScaledRecipes[] = {"fp8-tensor",
                                      "fp8-row",
                                      "fp8-block",
                                      "mxfp8",
                                      "mxfp8,scale=e8m0-ceil",
                                      "mxfp8,scale=e8m0-floor",
                                      "mxfp6",
                                      "mxfp4",
                                      "nvfp4",
                                      "fp8-block,scale=e8m0"};

TEST(Cases, FC27_BlocksOfZerosStayZeroAndLeaveTheirNeighboursAlone) {
  for (const char* recipe : kScaledRecipes) {
    for (const bool weight : {false, true}) {
      const OperandPrecision p = precision_of(recipe, weight);
      const QuantizedMatrix zero = quantize(Tensor::zeros({128, 128}, DType::f32), 1, p);
      for (int64_t i = 0; i < zero.values.numel(); ++i) {
        ASSERT_EQ(zero.values.data<uint8_t>()[i], 0) << recipe;
      }
      EXPECT_TRUE(std::isfinite(scale_of(zero, 0, 0)) && scale_of(zero, 0, 0) > 0) << recipe;
      // A row of zeros among others.
      Tensor x = random_matrix(8, 128, 1);
      const std::vector<double> before = dequantize(quantize(x, 1, p)).to_doubles();
      std::fill_n(x.data<float>() + 3 * 128, 128, 0.0f);
      const std::vector<double> after = dequantize(quantize(x, 1, p)).to_doubles();
      for (int64_t i = 0; i < 8 * 128; ++i) {
        ASSERT_TRUE(std::isfinite(after[static_cast<size_t>(i)])) << recipe;
        if (i / 128 == 3) {
          ASSERT_EQ(after[static_cast<size_t>(i)], 0.0) << recipe;
        } else if (p.scaling != Scaling::tensor && p.scaling != Scaling::nvfp4 && !weight) {
          ASSERT_EQ(after[static_cast<size_t>(i)], before[static_cast<size_t>(i)]) << recipe;
        }
      }
    }
  }
}

TEST(Cases, FC28_TinyBlocksNeverDivideByTheirOwnSmallness) {
  for (const char* recipe : kScaledRecipes) {
    const OperandPrecision p = precision_of(recipe);
    for (const float amax : {1e-40f, 1e-37f, 1e-36f, 1.3e-36f, 1e-30f}) {
      const Tensor x = Tensor::from<float>({amax, -amax / 3, amax / 7, 0.0f}, {1, 4});
      const QuantizedMatrix q = quantize(x, 1, p);
      const float s = scale_of(q, 0, 0);
      ASSERT_TRUE(std::isfinite(s) && s >= 0x1p-126f) << recipe << " " << amax;
      const std::vector<double> y = dequantize(q).to_doubles();
      const double quantum = std::max(p.format.epsilon() * amax, p.format.min_subnormal() * s);
      for (int64_t i = 0; i < 4; ++i) {
        const double error = std::fabs(y[static_cast<size_t>(i)] - x.data<float>()[i]);
        EXPECT_LE(error, quantum) << recipe << " amax " << amax << " element " << i;
      }
    }
  }
}

TEST(Cases, FC33_ANonFiniteValueIsNeverLaundered) {
  for (const char* recipe : kScaledRecipes) {
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (int at = 0; at < 3; ++at) {
          std::vector<float> values{1.0f, 2.0f, 3.0f};
          values[static_cast<size_t>(at)] = bad;
          Tensor x = Tensor::from(values, {1, 3});
          if (dtype == DType::bf16) {
            Tensor y = Tensor::empty({1, 3}, dtype);
            convert(x.data<float>(), 3, y.data<BFloat16>());
            x = y;
          } else if (dtype == DType::f16) {
            Tensor y = Tensor::empty({1, 3}, dtype);
            convert(x.data<float>(), 3, y.data<Half>());
            x = y;
          }
          const QuantizedMatrix q = quantize(x, 1, precision_of(recipe));
          EXPECT_TRUE(std::isnan(scale_of(q, 0, 0)))
              << recipe << " " << bad << " at " << at << " in " << dtype;
        }
      }
    }
  }
}

TEST(Cases, FC35_ScalesOfPartialTilesMatchAScalarLoop) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{129, 129}, {1, 8193}, {96, 784}}) {
    const Tensor x = random_matrix(rows, columns, 17);
    x.data<float>()[x.numel() - 1] = 1000.0f;  // the maximum is the very last element
    for (const char* recipe : {"fp8-block", "fp8-row", "mxfp8", "fp8-tensor"}) {
      for (const int k_axis : {0, 1}) {
        const OperandPrecision p = precision_of(recipe);
        const QuantizedMatrix q = quantize(x, k_axis, p);
        for (const auto& [r, c] : {std::pair<int64_t, int64_t>{0, 0},
                                   {rows - 1, columns - 1},
                                   {rows / 2, columns - 1},
                                   {rows - 1, 0}}) {
          EXPECT_EQ(scale_of(q, r, c), scale_by_loop(x, q, p, r, c))
              << recipe << " " << k_axis << " at " << r << ", " << c;
        }
      }
    }
  }
}

TEST(Cases, FC37_QuantisingATransposeIsNotTransposingAQuantisation) {
  Tensor x = random_matrix(256, 256, 23, 0.5f);
  x.data<float>()[5] = 1000.0f;  // one outlier in row 0
  Tensor transposed = Tensor::empty({256, 256}, DType::f32);
  for (int64_t r = 0; r < 256; ++r) {
    for (int64_t c = 0; c < 256; ++c) {
      transposed.data<float>()[c * 256 + r] = x.data<float>()[r * 256 + c];
    }
  }
  const auto at = [](const std::vector<double>& v, int64_t r, int64_t c) {
    return v[static_cast<size_t>(r * 256 + c)];
  };
  for (const bool weight : {false, true}) {
    const OperandPrecision p = precision_of("fp8-block", weight);
    const std::vector<double> direct = dequantize(quantize(x, 1, p)).to_doubles();
    const std::vector<double> of_transpose = dequantize(quantize(transposed, 1, p)).to_doubles();
    const std::vector<double> along_rows = dequantize(quantize(x, 0, p)).to_doubles();
    int64_t differences = 0;
    for (int64_t r = 0; r < 256; ++r) {
      for (int64_t c = 0; c < 256; ++c) {
        differences += at(direct, r, c) != at(of_transpose, c, r);
        ASSERT_EQ(at(along_rows, r, c),
                  at(of_transpose, c, r));  // quantising along the other axis is what is meant
      }
    }
    EXPECT_EQ(differences == 0, weight);  // square blocks transpose exactly, 1x128 blocks do not
  }
}

}  // namespace
}  // namespace halftone
