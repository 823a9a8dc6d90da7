#include "ops/gemm/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace halftone {
namespace {

/// |x| = significand * 2^(exponent - fraction bits of its format).
struct Parts {
  int64_t significand;
  int exponent;
};

/// The parts of a value of `format`: subnormals have the exponent of the smallest normal number.
Parts split(float x, const Format& format) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu;
  if (magnitude == 0) {
    return {0, 1 - format.bias()};
  }
  const int field = static_cast<int>(magnitude >> 23);
  const int64_t fraction = magnitude & 0x7FFFFFu;
  const int exponent = std::max(field, 1) - 127;
  const int lowest = 1 - format.bias();
  const int raised = std::max(exponent, lowest);
  const int64_t significand = field == 0 ? fraction : fraction | 0x800000;
  return {significand >> (23 - format.mantissa_bits + raised - exponent), raised};
}

/// significand * 2^shift, truncated; shift < 40 unless significand is 0.
int64_t align(int64_t significand, int shift) {
  if (significand == 0 || shift < -62) {
    return 0;
  }
  return shift >= 0 ? significand << shift : significand >> -shift;
}

/// magnitude * 2^exponent truncated to FP32 with `fraction_bits`.
float truncate(uint64_t magnitude, int exponent, int fraction_bits) {
  if (magnitude == 0) {
    return 0.0f;
  }
  const int top = 63 - std::countl_zero(magnitude);
  const int lowest = std::max(top + exponent, -126) - fraction_bits;  // weight of the last bit kept
  const int dropped = lowest - exponent;
  if (dropped > 63) {
    return 0.0f;
  }
  const uint64_t kept = dropped > 0 ? magnitude >> dropped << dropped : magnitude;
  return static_cast<float>(std::ldexp(static_cast<double>(kept), exponent));
}

}  // namespace

TensorCoreUnit tensor_core_unit(Accumulator acc, const Format& a, const Format& b) {
  const Format compute = compute_format(a, b);
  const auto takes = [&](bool condition, std::string_view expected) {
    HALFTONE_CHECK(condition,
                   "gemm: acc=",
                   name_of(acc),
                   " takes ",
                   expected,
                   " operands; these are ",
                   to_string(a),
                   " and ",
                   to_string(b));
  };
  TensorCoreUnit unit;
  unit.a = unit.b = compute;
  switch (acc) {
    case Accumulator::fp32:
      takes(false, "no Tensor Core's");
      break;
    case Accumulator::hopper16:
    case Accumulator::ampere16:
      takes(compute != kFp32, "16-bit, tf32 and narrower");
      unit.products = (acc == Accumulator::hopper16 ? 16 : 8) / (compute == kTf32 ? 2 : 1);
      unit.fraction_bits = acc == Accumulator::hopper16 ? 25 : 24;
      break;
    case Accumulator::hopper8:
      takes((a == kE4M3 || a == kE5M2) && (b == kE4M3 || b == kE5M2), "e4m3 and e5m2");
      unit = {.products = 32, .fraction_bits = 13, .result_fraction_bits = 13, .a = a, .b = b};
      break;
    case Accumulator::fp16:
      takes(compute == kFp16, "fp16 and narrower");
      unit.fp16_result = true;
      break;
  }
  return unit;
}

float tensor_core_step(const TensorCoreUnit& unit, const float* a, const float* b, float c) {
  const float nan = std::bit_cast<float>(0x7FFFFFFFu);
  const float infinity = std::numeric_limits<float>::infinity();
  bool plus_infinity = c == infinity;
  bool minus_infinity = c == -infinity;
  bool is_nan = c != c;
  const Parts addend = split(c, kFp32);
  int largest = c == 0 ? -1000 : addend.exponent;
  for (int k = 0; k < unit.products; ++k) {
    const float product = a[k] * b[k];  // for its sign and specials
    is_nan |= product != product;
    if (std::isinf(a[k]) || std::isinf(b[k])) {
      plus_infinity |= product > 0;
      minus_infinity |= product < 0;
    }
    if (a[k] != 0 && b[k] != 0) {
      largest = std::max(largest, split(a[k], unit.a).exponent + split(b[k], unit.b).exponent);
    }
  }
  if (is_nan || (plus_infinity && minus_infinity)) {
    return nan;
  }
  if (plus_infinity || minus_infinity) {
    return plus_infinity ? infinity : -infinity;
  }
  const auto signed_term = [&](bool negative, int64_t significand, int exponent) {
    const int64_t aligned = align(significand, unit.fraction_bits + exponent - largest);
    return negative ? -aligned : aligned;
  };
  int64_t sum = signed_term(std::signbit(c), addend.significand, addend.exponent - 23);
  for (int k = 0; k < unit.products; ++k) {
    const Parts x = split(a[k], unit.a);
    const Parts y = split(b[k], unit.b);
    sum += signed_term(std::signbit(a[k]) != std::signbit(b[k]),
                       x.significand * y.significand,
                       x.exponent + y.exponent - unit.a.mantissa_bits - unit.b.mantissa_bits);
  }
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int exponent = largest - unit.fraction_bits;
  const float value =
      unit.fp16_result
          ? decode(kFp16, encode(kFp16, std::ldexp(static_cast<double>(magnitude), exponent)))
          : truncate(magnitude, exponent, unit.result_fraction_bits);
  return sum < 0 && value != 0 ? -value : value;  // zero is positive, underflow included
}

}  // namespace halftone
