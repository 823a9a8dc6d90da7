// Random single instructions of a Tensor Core: the forms that were recorded on a GPU
// (tests/gpu/vectors), samples that reach into every corner of their arithmetic, and what
// ops/gemm/tensor_core.h makes of a sample. Shared by the program that records and the test that
// replays.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ops/gemm/tensor_core.h"

namespace halftone::testing {

/// One instruction form: n products of 32 bytes an operand.
struct TensorCoreForm {
  const char* name;
  Format a, b;
  Accumulator acc;
  int products() const { return 32 / element_bytes(); }
  int element_bytes() const { return a.bits() <= 8 ? 1 : a.bits() <= 16 ? 2 : 4; }
};

enum FormId {
  kWgmmaBf16,
  kWgmmaFp16,
  kWgmmaTf32,
  kWgmmaE4M3,
  kWgmmaE5M2,
  kWgmmaE4M3E5M2,
  kWgmmaFp16Acc16,
  kMmaBf16,
  kMmaFp16,
  kMmaTf32,
  kMmaFp16Acc16,
};

inline constexpr TensorCoreForm kTensorCoreForms[] = {
    {"wgmma_bf16", kBf16, kBf16, Accumulator::hopper16},
    {"wgmma_fp16", kFp16, kFp16, Accumulator::hopper16},
    {"wgmma_tf32", kTf32, kTf32, Accumulator::hopper16},
    {"wgmma_e4m3", kE4M3, kE4M3, Accumulator::hopper8},
    {"wgmma_e5m2", kE5M2, kE5M2, Accumulator::hopper8},
    {"wgmma_e4m3_e5m2", kE4M3, kE5M2, Accumulator::hopper8},
    {"wgmma_fp16_acc16", kFp16, kFp16, Accumulator::fp16},
    {"mma_bf16", kBf16, kBf16, Accumulator::hopper16},
    {"mma_fp16", kFp16, kFp16, Accumulator::hopper16},
    {"mma_tf32", kTf32, kTf32, Accumulator::hopper16},
    {"mma_fp16_acc16", kFp16, kFp16, Accumulator::fp16},
};

/// Operands and addend of one output element, and its result, as the hardware stores them. c and d
/// are the bits of a float, or of a binary16 where the accumulator is one.
struct TensorCoreSample {
  std::array<uint8_t, 32> a, b;
  uint32_t c = 0, d = 0;
};
static_assert(sizeof(TensorCoreSample) == 72);

/// Random samples: normal values, every exponent, cancellation, subnormals, zeros of both signs
/// (beside large factors), overflow, infinities and NaN, in operands and addend.
std::vector<TensorCoreSample> random_samples(const TensorCoreForm& form,
                                             size_t count,
                                             uint32_t seed);

/// Operands and addend as floats.
struct DecodedSample {
  std::array<float, 32> a, b;
  float c;
};
DecodedSample decode_sample(const TensorCoreForm& form, const TensorCoreSample& sample);

/// The result of tensor_core_step, as the hardware would store it.
uint32_t model_result(const TensorCoreForm& form, const TensorCoreSample& sample);

}  // namespace halftone::testing
