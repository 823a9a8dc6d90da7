// Elementary functions in FP32 with the same bits on host and device, with or without vector or FMA
// instructions: only correctly rounded operations (+, -, *, /, sqrt, explicit fma) in a written
// order, no tables, no hardware approximations. Branch-free, so that loops over them vectorise. NaN
// gives NaN (its payload is not promised), limits and subnormals are right, and
// tests/core/math_test.cc measures the errors stated below over all floats. The double overloads
// call the standard library: they serve gradient checks on the CPU, where ops run in double.
// Polynomials: own minimax fits (Remez exchange in 60 digits, coefficients rounded to float one by
// one, the others refitted).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/device.h"

namespace halftone::math {

/// a * b + c, rounded once.
HALFTONE_HD inline float fma(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}
HALFTONE_HD inline double fma(double a, double b, double c) { return std::fma(a, b, c); }

/// Square root, correctly rounded.
HALFTONE_HD inline float sqrt(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}
HALFTONE_HD inline double sqrt(double x) { return std::sqrt(x); }

/// a / b, correctly rounded.
HALFTONE_HD inline float divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
HALFTONE_HD inline double divide(double a, double b) { return a / b; }

namespace detail {

/// e^x as fraction * 2^exponent with fraction in [0.70, 1.42], for |x| < 2^21.
struct Exp {
  float fraction;
  uint32_t exponent;  // two's complement
};

HALFTONE_HD inline Exp exp_parts(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e43p-1f;
  constexpr float kLn2Low = -0x1.05c61p-29f;
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const float shifted = fma(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  float q = 0x1.6bbf44p-13f;  // (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, e^r to 2^-31
  q = fma(q, r, 0x1.6d40a6p-10f);
  q = fma(q, r, 0x1.1137p-7f);
  q = fma(q, r, 0x1.5554f2p-5f);
  q = fma(q, r, 0x1.55553cp-3f);
  q = fma(q, r, 0.5f);
  return {fma(r * r, q, r) + 1.0f,
          std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound)};
}

/// 2^n as a float, -126 <= n <= 127 in two's complement.
HALFTONE_HD inline float power_of_two(uint32_t n) { return std::bit_cast<float>((n + 127u) << 23); }

}  // namespace detail

/// e^x, at most 1 ulp off. Underflows gradually; overflows to infinity.
HALFTONE_HD inline float exp(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const detail::Exp e = detail::exp_parts(x);
  // Two factors: neither 2^128 nor 2^-150 is a float. The first product is exact.
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(e.exponent) >> 1);
  return e.fraction * detail::power_of_two(half) * detail::power_of_two(e.exponent - half);
}
HALFTONE_HD inline double exp(double x) { return std::exp(x); }

namespace detail {

/// exp(x) for -130 <= x <= 0 or NaN, the same bits in fewer instructions: 2^64 too large it is
/// normal and exact, so that one multiplication rounds it.
HALFTONE_HD inline float exp_of_negative(float x) {
  const Exp e = exp_parts(x);
  return e.fraction * power_of_two(e.exponent + 64u) * 0x1p-64f;
}
HALFTONE_HD inline double exp_of_negative(double x) { return std::exp(x); }

}  // namespace detail

/// Natural logarithm, at most 1 ulp off. log(+-0) = -inf, log(x < 0) = NaN.
HALFTONE_HD inline float log(float x) {
  constexpr float kLn2High = 0x1.62ep-1f;  // 13 bits: its multiples by an exponent are exact
  constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  constexpr uint32_t kTwoThirds = 0x3f2aaaab;
  const bool subnormal = x < 0x1p-126f;
  const uint32_t bits = std::bit_cast<uint32_t>(subnormal ? x * 0x1p23f : x);
  // x = m * 2^k with m in [2/3, 4/3)
  const uint32_t k_bits = (bits - kTwoThirds) & 0xff800000u;
  const float k =
      static_cast<float>(static_cast<int32_t>(k_bits) >> 23) - (subnormal ? 23.0f : 0.0f);
  const float f = std::bit_cast<float>(bits - k_bits) - 1.0f;
  float q = 0x1.e06864p-4f;  // (log(1+f) - f + f^2/2) / f^3 on [-1/3, 1/3], log(1+f) to 2^-30
  q = fma(q, f, -0x1.07d5dep-3f);
  q = fma(q, f, 0x1.bb44fep-4f);
  q = fma(q, f, -0x1.f336fep-4f);
  q = fma(q, f, 0x1.24d7b4p-3f);
  q = fma(q, f, -0x1.559bbp-3f);
  q = fma(q, f, 0x1.99985ep-3f);
  q = fma(q, f, -0x1.ffff02p-3f);
  q = fma(q, f, 0x1.555556p-2f);
  const float tail = fma(fma(q, f, -0.5f), f * f, k * kLn2Low);
  // k * ln2 + f with its rounding error kept: f is small beside a k that is not zero.
  const float high = k * kLn2High;
  const float sum = high + f;
  const float result = sum + ((f - (sum - high)) + tail);
  const float special = x == 0.0f  ? -std::numeric_limits<float>::infinity()
                        : x > 0.0f ? x  // +inf
                                   : std::numeric_limits<float>::quiet_NaN();
  return x > 0.0f && x < std::numeric_limits<float>::infinity() ? result : special;
}
HALFTONE_HD inline double log(double x) { return std::log(x); }

/// Hyperbolic tangent, at most 2 ulp off, odd to the bit.
HALFTONE_HD inline float tanh(float x) {
  const float a = std::fabs(x);
  const float s = a * a;
  float q = -0x1.9921ap-8f;  // (tanh(a) - a) / a^3 on a <= 0.55, tanh to 2^-29.7
  q = fma(q, s, 0x1.58e518p-6f);
  q = fma(q, s, -0x1.b91e7ep-5f);
  q = fma(q, s, 0x1.110ceep-3f);
  q = fma(q, s, -0x1.55554ap-2f);
  const float near = fma(q * s, a, a);
  const detail::Exp e = detail::exp_parts(2.0f * (a > 10.0f ? 10.0f : a));
  const float far = 1.0f - divide(2.0f, fma(e.fraction, detail::power_of_two(e.exponent), 1.0f));
  return std::copysign(a < 0.55f ? near : far, x);
}
HALFTONE_HD inline double tanh(double x) { return std::tanh(x); }

/// 1 / sqrt(x), at most 1.5 ulp off: two correctly rounded steps. rsqrt(+-0) = +-inf, rsqrt(x < 0)
/// = NaN.
HALFTONE_HD inline float rsqrt(float x) { return divide(1.0f, sqrt(x)); }
HALFTONE_HD inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

/// Error function, at most 2 ulp off, odd to the bit.
HALFTONE_HD inline float erf(float x) {
  const float a = std::fabs(x);
  const float s = a * a;
  float q = 0x1.4d2864p-14f;  // erf(a) / a - 1 on a <= 0.9, erf to 2^-30
  q = fma(q, s, -0x1.a583bcp-11f);
  q = fma(q, s, 0x1.543f2ap-8f);
  q = fma(q, s, -0x1.b80062p-6f);
  q = fma(q, s, 0x1.ce2d6p-4f);
  q = fma(q, s, -0x1.812744p-2f);
  q = fma(q, s, 0x1.06eba8p-3f);
  const float near = fma(q, a, a);
  const float b = a > 4.0f ? 4.0f : a;
  float p = -0x1.9d8834p-13f;  // -log(1 - erf(b)) on [0.9, 3.95], erf to 2^-29.2
  p = fma(p, b, 0x1.908294p-9f);
  p = fma(p, b, -0x1.6cfd58p-6f);
  p = fma(p, b, 0x1.aa2338p-4f);
  p = fma(p, b, 0x1.462cbp-1f);
  p = fma(p, b, 0x1.20b432p+0f);
  p = fma(p, b, 0x1.743f38p-13f);
  const detail::Exp e = detail::exp_parts(-p);
  const float far = fma(-e.fraction, detail::power_of_two(e.exponent), 1.0f);
  return std::copysign(a < 0.9f ? near : far, x);
}
HALFTONE_HD inline double erf(double x) { return std::erf(x); }

namespace detail {

/// sigmoid(x) and 1 - sigmoid(x), neither by cancellation nor through an infinity.
template <class T>
struct Sigmoid {
  T value, complement;
};

/// 1 / d for 1 <= d <= 2, correctly rounded. On the device without the branches of a general
/// division: the hardware's approximation and one Newton step, which hit every float of the range.
HALFTONE_HD inline float reciprocal_of_1_to_2(float d) {
#ifdef __CUDA_ARCH__
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
#else
  return 1.0f / d;
#endif
}
HALFTONE_HD inline double reciprocal_of_1_to_2(double d) { return 1.0 / d; }

/// For |x| <= 130, or NaN.
template <class T>
HALFTONE_HD inline Sigmoid<T> sigmoid_pair(T x) {
  const T g = exp_of_negative(-std::fabs(x));
  const T large = reciprocal_of_1_to_2(T(1) + g);
  const T small = g * large;
  return {x < T(0) ? small : large, x < T(0) ? large : small};
}

/// e^-|x| underflows beyond.
HALFTONE_HD inline float sigmoid_clamp(float x) {
  x = x > 104.0f ? 104.0f : x;
  return x < -104.0f ? -104.0f : x;
}
HALFTONE_HD inline double sigmoid_clamp(double x) { return x; }

// gelu(x) = x * sigmoid(z), z = 2 sqrt(2/pi) (x + 0.044715 x^3): the two coefficients of z.
template <class T>
inline constexpr T kGeluLinear = T(1.59576912160573071176);
template <class T>
inline constexpr T kGeluCubic = T(0.0713548162726002487763);

/// Beyond +-10.7, where e^-|z| rounds to zero, GELU and its derivative have reached their limits;
/// z then stays where exp_of_negative needs no clamp. NaN stays NaN.
HALFTONE_HD inline float gelu_clamp(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("min.NaN.f32 %0, %0, %1;\n\tmax.NaN.f32 %0, %0, %2;" : "+f"(x) : "f"(10.7f), "f"(-10.7f));
  return x;
#else
  x = x > 10.7f ? 10.7f : x;
  return x < -10.7f ? -10.7f : x;
#endif
}
HALFTONE_HD inline double gelu_clamp(double x) {
  x = x > 64.0 ? 64.0 : x;
  return x < -64.0 ? -64.0 : x;
}

}  // namespace detail

/// 1 / (1 + e^-x), at most 3 ulp off.
template <class T>
HALFTONE_HD inline T sigmoid(T x) {
  return detail::sigmoid_pair(detail::sigmoid_clamp(x)).value;
}

/// GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written with a sigmoid, which
/// does not cancel for negative x. Far out it is x or -0 (-0 for -inf too). 4 ulp off where x >= 0;
/// at most 2^-23 anywhere below. Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.
template <class T>
HALFTONE_HD inline T gelu(T x) {
  const T c = detail::gelu_clamp(x);
  const T z = c * fma(detail::kGeluCubic<T>, c * c, detail::kGeluLinear<T>);
  return (x < c ? c : x) * detail::sigmoid_pair(z).value;
}

/// Its derivative: 1 or 0 far out. At most 2^-21 off.
template <class T>
HALFTONE_HD inline T gelu_grad(T x) {
  const T c = detail::gelu_clamp(x);
  const T c2 = c * c;
  const T z = c * fma(detail::kGeluCubic<T>, c2, detail::kGeluLinear<T>);
  const T dz = fma(T(3) * detail::kGeluCubic<T>, c2, detail::kGeluLinear<T>);
  const detail::Sigmoid<T> s = detail::sigmoid_pair(z);
  return fma(s.value * s.complement, c * dz, s.value);
}

}  // namespace halftone::math
