// Rounding of a pack of neighbours to codes in a kernel, with the bits of encode() in
// core/formats.h. The encoders: the hardware's FP8 conversions, three roundings of which the least
// is right for E2M1 (of two at a time under scales that are powers of two), a few integer and FP32
// instructions for any other format of at most 8 bits rounded to nearest, and the codec itself for
// the rest. Codes of a pack come out as 32-bit words, the first element in the lowest bits.
#pragma once

#include "core/cuda/reduce.cuh"
#include "core/math.h"
#include "core/random.h"
#include "ops/op.cuh"

namespace halftone::device {

/// Words that hold N codes.
template <class Code, int N>
inline constexpr int kWordsOf = N* static_cast<int>(sizeof(Code)) / 4;

/// Formats of 2 to 8 bits with a fraction and less than 8 exponent bits, to nearest, saturating.
/// The sum of a magnitude and a power of two whose ulp is the grid's step is the rounded magnitude;
/// its low bits count steps, evenly where the code is even.
class NarrowEncoder {
 public:
  using Code = uint8_t;
  static constexpr int kBatch = 4;  // rows of packs that a thread rounds together

  static bool takes(Format f, Rounding rounding) {
    return f.bits() <= 8 && f.exponent_bits < 8 && f.mantissa_bits > 0 &&
           rounding == Rounding::nearest;
  }
  __host__ __device__ explicit NarrowEncoder(Format f)
      : largest_(decode(f, f.max_code())),
        lowest_(static_cast<uint32_t>(128 - f.bias()) << 23),
        to_step_(static_cast<uint32_t>(23 - f.mantissa_bits)),
        sign_shift_(static_cast<uint32_t>(32 - f.bits())),
        sign_(f.magnitude_mask() + 1),
        nan_(f.has_nan() ? f.nan_code() : f.max_code()) {}

  __device__ uint32_t operator()(float x) const {
    const float magnitude = fminf(fabsf(x), largest_);
    const uint32_t exponent =
        max(std::bit_cast<uint32_t>(magnitude) & 0x7f800000u, lowest_);  // of the grid
    const uint32_t power = exponent + (to_step_ << 23);
    const float sum = magnitude + std::bit_cast<float>(power);
    const uint32_t code =
        (std::bit_cast<uint32_t>(sum) - power) + ((exponent - lowest_) >> to_step_);
    const uint32_t sign = (std::bit_cast<uint32_t>(x) >> sign_shift_) & sign_;
    return x != x ? nan_ : code | sign;
  }

  template <int N>
  __device__ void operator()(const float (&x)[N], int64_t, uint32_t (&words)[N / 4]) const {
#pragma unroll
    for (int k = 0; k < N / 4; ++k) {
      const uint32_t low = (*this)(x[4 * k]) | (*this)(x[4 * k + 1]) << 8;
      const uint32_t high = (*this)(x[4 * k + 2]) | (*this)(x[4 * k + 3]) << 8;
      words[k] = low | high << 16;
    }
  }

 private:
  float largest_;
  uint32_t lowest_;  // 2^(exponent of the smallest normal)
  uint32_t to_step_;
  uint32_t sign_shift_, sign_;
  uint32_t nan_;
};

/// E4M3 or E5M2 to nearest, saturating: from sm_89 on one instruction for two.
template <bool e5m2>
class Fp8Encoder {
 public:
  using Code = uint8_t;
  static constexpr int kBatch = 4;

  template <int N>
  __device__ void operator()(const float (&x)[N], int64_t i, uint32_t (&words)[N / 4]) const {
#if __CUDA_ARCH__ >= 890
#pragma unroll
    for (int k = 0; k < N / 4; ++k) {
      words[k] = pair(x[4 * k], x[4 * k + 1]) | pair(x[4 * k + 2], x[4 * k + 3]) << 16;
    }
#else
    NarrowEncoder(e5m2 ? kE5M2 : kE4M3)(x, i, words);
#endif
  }

 private:
#if __CUDA_ARCH__ >= 890
  __device__ static uint32_t pair(float low, float high) {
    uint16_t codes;
    if constexpr (e5m2) {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    } else {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    }
    return codes;
  }
#endif
};

/// E2M1 to nearest, saturating. Its codes count halves up to 2, ones up to 4 and twos up to 6, and
/// are the least of the three counts, each rounded to nearest even by an addition whose ulp is the
/// step. x is a product: its NaN has no sign.
class Fp4Encoder {
 public:
  using Code = uint8_t;
  static constexpr int kBatch = 4;

  template <int N>
  __device__ void operator()(const float (&x)[N], int64_t, uint32_t (&words)[N / 4]) const {
#pragma unroll
    for (int k = 0; k < N / 4; ++k) {
      const float* four = x + 4 * k;
      const uint32_t codes =
          bytes<0>(count(four[0]), count(four[1]), count(four[2]), count(four[3]));
      const uint32_t tops = bytes<3>(std::bit_cast<uint32_t>(four[0]),
                                     std::bit_cast<uint32_t>(four[1]),
                                     std::bit_cast<uint32_t>(four[2]),
                                     std::bit_cast<uint32_t>(four[3]));
      words[k] = codes | (tops >> 4 & 0x08080808u);
    }
  }

 private:
  // In the lowest byte: halves, ones + 2 and twos + 4 as sums whose ulp is a half.
  __device__ static uint32_t count(float x) {
    constexpr float kHalves = 0x1p22f;
    const float magnitude = fabsf(x);
    const auto bits = [](float sum) { return std::bit_cast<int32_t>(sum); };
    const int32_t halves = bits(magnitude + kHalves);
    const int32_t ones = bits(math::fma(magnitude, 0.5f, kHalves + 1.0f));
    const int32_t twos = bits(math::fma(magnitude, 0.25f, kHalves + 2.0f));
    constexpr int32_t kMost = std::bit_cast<int32_t>(kHalves) + 7;  // and NaN's
    return static_cast<uint32_t>(min(min(halves, ones), min(twos, kMost)));
  }

  template <int byte>
  __device__ static uint32_t bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    constexpr unsigned kBoth = byte | (byte + 4) << 4;
    return __byte_perm(__byte_perm(a, b, kBoth), __byte_perm(c, d, kBoth), 0x5410);
  }
};

/// E2M1 of BF16 values under scales that are powers of two: their products are BF16 numbers (less
/// those that round to zero anyway), so that Fp4Encoder's sums are made of two at once.
class Fp4PairEncoder {
 public:
  using Code = uint8_t;

  /// Codes of four elements, two pairs. `reciprocals`: that of their scale, twice.
  __device__ uint32_t operator()(const uint32_t (&pairs)[2], uint32_t reciprocals) const {
    constexpr uint32_t kNothing = 0x80008000u;  // -0, so that a product keeps its sign
    const uint32_t first = fma(pairs[0], reciprocals, kNothing);
    const uint32_t second = fma(pairs[1], reciprocals, kNothing);
    const uint32_t codes = __byte_perm(count(first), count(second), 0x6420);
    const uint32_t tops = __byte_perm(first, second, 0x7531);
    return (codes & 0x07070707u) | (tops >> 4 & 0x08080808u);
  }

 private:
  __device__ static uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
  __device__ static uint32_t least(uint32_t a, uint32_t b) {  // NaN loses
    uint32_t c;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
  // Near 64 the ulp is a half. In the lowest bits: halves, ones + 2 and twos + 4, at most 7.
  __device__ static uint32_t count(uint32_t x) {
    const uint32_t magnitude = x & 0x7fff7fffu;
    const uint32_t halves = fma(magnitude, 0x3f803f80u, 0x42804280u);
    const uint32_t ones = fma(magnitude, 0x3f003f00u, 0x42824282u);
    const uint32_t twos = fma(magnitude, 0x3e803e80u, 0x42844284u);
    return least(least(halves, ones), least(twos, 0x42874287u));
  }
};

/// Any format and rounding. uint8_t and uint16_t: codes; float: rounded values. Draws belong to
/// elements: the pack starts at element i.
template <class C>
struct AnyEncoder {
  using Code = C;
  static constexpr int kBatch = 1;  // the codec is long

  Format format;
  Rounding rounding;
  CountedStream draws;  // read by stochastic rounding alone

  template <int N>
  __device__ void operator()(const float (&x)[N],
                             int64_t i,
                             uint32_t (&words)[kWordsOf<Code, N>]) const {
    RandomStream stream{};
    if (rounding == Rounding::stochastic) {
      stream = draws.now();
    }
    PhiloxBlock block{};
    Code codes[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int64_t element = i + j;
      if (rounding == Rounding::stochastic && (j == 0 || element % 4 == 0)) {
        block = stream.block(static_cast<uint64_t>(element) / 4);
      }
      const bool upper = (element & 2) != 0;  // selected, not indexed: blocks stay in registers
      const bool odd = (element & 1) != 0;
      const uint32_t draw =
          upper ? (odd ? block.word[3] : block.word[2]) : (odd ? block.word[1] : block.word[0]);
      const uint32_t code = encode(format, x[j], rounding, Overflow::standard, draw);
      if constexpr (std::is_same_v<Code, float>) {
        codes[j] = decode(format, code);
      } else {
        codes[j] = static_cast<Code>(code);
      }
    }
    memcpy(words, codes, sizeof(words));
  }
};

}  // namespace halftone::device
