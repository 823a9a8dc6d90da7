// The model of the Tensor Core against an H200's own results (tests/gpu/vectors, recorded by
// tests/gpu/tensor_core_vectors.cu), and the fast kernel against the model, bit for bit.
#include "ops/gemm/tensor_core.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ops/gemm/tensor_core_strip.h"
#include "tests/support/tensor_core_samples.h"

namespace halftone {
namespace {

using testing::DecodedSample;
using testing::kTensorCoreForms;
using testing::TensorCoreForm;
using testing::TensorCoreSample;

constexpr size_t kRecorded = 4096;

std::vector<TensorCoreSample> recorded_samples(const TensorCoreForm& form) {
  std::vector<TensorCoreSample> samples(kRecorded);
  std::ifstream file(std::string(HALFTONE_SOURCE_DIR "/tests/gpu/vectors/") + form.name + ".bin",
                     std::ios::binary);
  file.read(reinterpret_cast<char*>(samples.data()),
            static_cast<std::streamsize>(samples.size() * sizeof(TensorCoreSample)));
  EXPECT_TRUE(file.good()) << form.name;
  return samples;
}

float result_value(const TensorCoreForm& form, uint32_t d) {
  return form.acc == Accumulator::fp16 ? decode(kFp16, d) : std::bit_cast<float>(d);
}

/// Results of one strip, columns from 16 samples and the row from the first, that differ from
/// tensor_core_step's.
size_t strip_differences(const TensorCoreForm& form,
                         const TensorCoreUnit& unit,
                         const TensorCoreSample* samples) {
  const DecodedSample row = testing::decode_sample(form, samples[0]);
  std::array<int16_t, 32> a_exponents{};
  std::array<float, 32 * kStripColumns> b{};
  std::array<int16_t, 32 * kStripColumns> b_exponents{};
  std::array<float, kStripColumns> c{}, expected{};
  for (int k = 0; k < unit.products; ++k) {
    a_exponents[k] = alignment_exponent(row.a[k], unit.a);
  }
  for (int j = 0; j < kStripColumns; ++j) {
    const DecodedSample s = testing::decode_sample(form, samples[j]);
    for (int k = 0; k < unit.products; ++k) {
      b[k * kStripColumns + j] = s.b[k];
      b_exponents[k * kStripColumns + j] = alignment_exponent(s.b[k], unit.b);
    }
    c[j] = s.c;
    expected[j] = tensor_core_step(unit, row.a.data(), s.b.data(), s.c);
  }
  tensor_core_strip(
      unit, 1, row.a.data(), a_exponents.data(), b.data(), b_exponents.data(), c.data());
  size_t different = 0;
  for (int j = 0; j < kStripColumns; ++j) {
    different += std::bit_cast<uint32_t>(c[j]) != std::bit_cast<uint32_t>(expected[j]);
  }
  return different;
}

TEST(TensorCore, ModelEqualsRecordedSilicon) {
  for (const TensorCoreForm& form : kTensorCoreForms) {
    SCOPED_TRACE(form.name);
    size_t different = 0;
    for (const TensorCoreSample& sample : recorded_samples(form)) {
      different += testing::model_result(form, sample) != sample.d;
    }
    EXPECT_EQ(different, 0u);
  }
}

TEST(TensorCore, RecordedVectorsReachTheCorners) {
  for (const TensorCoreForm& form : kTensorCoreForms) {
    SCOPED_TRACE(form.name);
    int nan = 0, zeros = 0, infinite = 0, negative_zero_operands = 0, subnormal_operands = 0;
    for (const TensorCoreSample& sample : recorded_samples(form)) {
      const DecodedSample s = testing::decode_sample(form, sample);
      const float d = result_value(form, sample.d);
      nan += std::isnan(d);
      zeros += d == 0;
      infinite += std::isinf(d);
      for (int k = 0; k < form.products(); ++k) {
        negative_zero_operands += s.a[k] == 0 && std::signbit(s.a[k]);
        subnormal_operands += s.a[k] != 0 && std::abs(s.a[k]) < form.a.min_normal();
      }
    }
    EXPECT_GT(nan, 100);
    EXPECT_GT(zeros, 50);
    EXPECT_TRUE(infinite > 50 || !form.a.has_infinity());
    EXPECT_GT(negative_zero_operands, 1000);
    EXPECT_GT(subnormal_operands, 500);
  }
}

/// 16 samples side by side: the operands of A are those of the first.
TEST(TensorCore, StripEqualsStep) {
  constexpr size_t kStrips = 6400;  // 102,400 instructions a unit
  for (const TensorCoreForm& form : kTensorCoreForms) {
    if (std::string_view(form.name).starts_with("mma")) {
      continue;  // the units of the wgmma forms
    }
    std::vector<Accumulator> accumulators{form.acc};
    if (form.acc == Accumulator::hopper16) {
      accumulators.push_back(Accumulator::ampere16);
    }
    const std::vector<TensorCoreSample> samples =
        testing::random_samples(form, kStrips * kStripColumns, 7);
    for (const Accumulator acc : accumulators) {
      SCOPED_TRACE(::testing::Message() << form.name << " " << name_of(acc));
      const TensorCoreUnit unit = tensor_core_unit(acc, form.a, form.b);
      size_t different = 0;
      for (size_t i = 0; i < samples.size(); i += kStripColumns) {
        different += strip_differences(form, unit, samples.data() + i);
      }
      EXPECT_EQ(different, 0u);
    }
  }
}

// What the hardware does where a textbook might differ; each is covered by the vectors, and spelled
// out here.
TEST(TensorCore, SpecialResults) {
  const TensorCoreUnit unit = tensor_core_unit(Accumulator::hopper16, kBf16, kBf16);
  const float inf = std::numeric_limits<float>::infinity();
  const auto run = [&](float a0, float b0, float a1, float b1, float c) {
    float a[16] = {a0, a1};
    float b[16] = {b0, b1};
    for (int k = 2; k < 16; ++k) {
      a[k] = b[k] = -0.0f;
    }
    return std::bit_cast<uint32_t>(tensor_core_step(unit, a, b, c));
  };
  const uint32_t plus_infinity = std::bit_cast<uint32_t>(inf);
  EXPECT_EQ(run(0.0f, inf, 1, 1, 0), 0x7FFFFFFFu) << "0 * inf is the canonical NaN";
  EXPECT_EQ(run(inf, 1, -inf, 1, 0), 0x7FFFFFFFu);
  EXPECT_EQ(run(inf, 1, 1, 1, -5), plus_infinity);
  EXPECT_EQ(run(0x1p127f, 0x1p127f, 0, 0, 0), plus_infinity)
      << "a result beyond FP32 is infinite, not the largest number";
  EXPECT_EQ(run(0x1p127f, 0x1p127f, -0x1p127f, 0x1p127f, 3), 0u)
      << "products beyond FP32 cancel; the addend was aligned away";
  EXPECT_EQ(run(-0.0f, 1, 0.0f, -1, -0.0f), 0u) << "a zero result is positive";
  EXPECT_EQ(run(-0x1p-100f, 0x1p-100f, 0, 0, 0), 0u) << "so is one that underflows";
  EXPECT_EQ(run(0, 0x1p127f, 1, 0x1p-30f, 0), std::bit_cast<uint32_t>(0x1p-30f))
      << "zeros do not take part in the alignment";
  EXPECT_EQ(run(0x1p-63f, 0x1p-64f, 0, 0, 0), std::bit_cast<uint32_t>(0x1p-127f))
      << "subnormal results are kept";
}

TEST(TensorCore, TruncatesEveryTermAndTheResult) {
  // 1 + 16 * 2^-25 * (2 - 2^-7): each term keeps 25 fraction bits below 1, so 2^-25 * 1.99 becomes
  // 2^-25.
  float a[16], b[16];
  for (int k = 0; k < 16; ++k) {
    a[k] = 0x1p-12f;
    b[k] = -(2 - 0x1p-7f) * 0x1p-13f;
  }
  const TensorCoreUnit hopper = tensor_core_unit(Accumulator::hopper16, kBf16, kBf16);
  EXPECT_EQ(tensor_core_step(hopper, a, b, 1.0f), 1.0f - 16 * 0x1p-25f);
  // Ampere adds 8 at a time with 24 fraction bits: nothing of them is left.
  const TensorCoreUnit ampere = tensor_core_unit(Accumulator::ampere16, kBf16, kBf16);
  EXPECT_EQ(ampere.products, 8);
  EXPECT_EQ(tensor_core_step(ampere, a, b, 1.0f), 1.0f);
}

TEST(TensorCore, UnitsRefuseWhatTheyDoNotMultiply) {
  EXPECT_THROW(tensor_core_unit(Accumulator::fp32, kBf16, kBf16), std::invalid_argument);
  EXPECT_THROW(tensor_core_unit(Accumulator::hopper16, kFp32, kBf16), std::invalid_argument);
  EXPECT_THROW(tensor_core_unit(Accumulator::hopper8, kE2M1, kE4M3), std::invalid_argument);
  EXPECT_THROW(tensor_core_unit(Accumulator::fp16, kBf16, kBf16), std::invalid_argument);
}

}  // namespace
}  // namespace halftone
