#include "core/convert.h"

#include <array>
#include <utility>

#include "core/check.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

namespace halftone {
namespace {

// What steers the codec. With these constant a loop vectorises though the widths of the fields stay
// variables, so no format needs code of its own.
struct Steering {
  Specials specials;
  bool wide;  // E = 8
  Rounding rounding;
  Overflow overflow;

  friend constexpr bool operator==(const Steering&, const Steering&) = default;
};

constexpr auto kSteerings = [] {
  std::array<Steering, 30> all{};
  size_t count = 0;
  for (const Specials specials : {Specials::ieee, Specials::nan_only, Specials::finite}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::zero}) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::ieee}) {
        all[count++] = {specials, false, rounding, overflow};
        if (specials != Specials::finite) {
          all[count++] = {specials, true, rounding, overflow};
        }
      }
    }
  }
  return all;
}();

template <Steering kSteering>
HALFTONE_HD_INLINE Format with_known(Format f) {
  const int exponent_bits =
      kSteering.wide ? 8 : f.exponent_bits & 7;  // shows the compiler that E < 8
  return Format{static_cast<int8_t>(exponent_bits), f.mantissa_bits, kSteering.specials};
}

template <Steering kSteering>
HALFTONE_HD_INLINE uint32_t encode_with(Format f, float x, const uint32_t* draws, size_t i) {
  const uint32_t draw = kSteering.rounding == Rounding::stochastic ? draws[i] : 0;
  return encode(f, x, kSteering.rounding, kSteering.overflow, draw);
}

// Each loop is a function of its own, which the compiler vectorises more readily than a branch of a
// large one.
template <Steering kSteering>
[[gnu::noinline]] void encode_loop(
    Format f, const float* x, float r, size_t n, uint8_t* codes, const uint32_t* draws) {
  const Format known = with_known<kSteering>(f);
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(encode_with<kSteering>(known, x[i] * r, draws, i));
  }
}

template <Steering kSteering>
[[gnu::noinline]] void round_loop(
    Format f, const float* x, float r, size_t n, float* y, const uint32_t* draws) {
  const Format known = with_known<kSteering>(f);
  for (size_t i = 0; i < n; ++i) {
    y[i] = decode(known, encode_with<kSteering>(known, x[i] * r, draws, i));
  }
}

template <Steering kSteering>
[[gnu::noinline]] void decode_loop(Format f, const uint8_t* codes, float s, size_t n, float* y) {
  const Format known = with_known<kSteering>(f);
  for (size_t i = 0; i < n; ++i) {
    y[i] = decode(known, codes[i]) * s;
  }
}

// Calls fn(steering) with the steering of f and mode as a constant.
template <class Fn>
void with_steering(Format f, const RoundingMode& mode, Fn&& fn) {
  const Steering wanted{f.specials,
                        f.exponent_bits == 8,
                        mode.rounding,
                        f.saturates(mode.overflow) ? Overflow::saturate : Overflow::ieee};
  const auto call_if = [&]<size_t kIndex>(std::index_sequence<kIndex>) {
    constexpr Steering kSteering = kSteerings[kIndex];
    if (kSteering == wanted) {
      fn(std::integral_constant<Steering, kSteering>{});
    }
    return kSteering == wanted;
  };
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (call_if(std::index_sequence<kIndex>{}) || ...);
  }
  (std::make_index_sequence<kSteerings.size()>{});
}

#if defined(__F16C__) && defined(__AVX2__)
/// Whether f's codes become those of binary16 by shifting, values scaled by a power of two (and NaN
/// moved): subnormals stay subnormal, and nothing finite meets binary16's top exponent.
bool fits_in_half(Format f) {
  return f.specials == Specials::ieee ? f.exponent_bits == 5 : f.exponent_bits < 5;
}

/// decode_scaled for such a format of at most 8 bits, 8 codes at a time; returns how many of the n
/// were done.
size_t decode_through_half(Format f, const uint8_t* codes, float s, size_t n, float* y) {
  const auto all = [](uint32_t value) { return _mm_set1_epi16(static_cast<int16_t>(value)); };
  const __m128i magnitude_mask = all(f.magnitude_mask());
  const __m128i magnitude_shift = _mm_cvtsi32_si128(10 - f.mantissa_bits);
  const __m128i sign_mask = all(f.magnitude_mask() + 1);
  const __m128i sign_shift = _mm_cvtsi32_si128(16 - f.bits());
  const __m128i nan_code = all(f.has_nan() ? f.nan_code() : 0xffffu);
  const __m256 power = _mm256_set1_ps(std::bit_cast<float>((127u + 15 - f.bias()) << 23));
  const __m256 scale = _mm256_set1_ps(s);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i code =
        _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i)));
    const __m128i magnitude = _mm_and_si128(code, magnitude_mask);
    const __m128i sign = _mm_sll_epi16(_mm_and_si128(code, sign_mask), sign_shift);
    const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, nan_code), all(0x7fff));
    const __m128i half =
        _mm_or_si128(_mm_or_si128(sign, nan), _mm_sll_epi16(magnitude, magnitude_shift));
    const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), power);  // exact
    _mm256_storeu_ps(y + i, _mm256_mul_ps(value, scale));
  }
  return i;
}
#endif

void check_element_format(const char* op, Format f, int max_bits) {
  HALFTONE_CHECK(f.has_sign(), op, ": ", to_string(f), " is a format of scales, not of elements");
  HALFTONE_CHECK(f.bits() <= max_bits,
                 op,
                 ": format ",
                 to_string(f),
                 " has ",
                 f.bits(),
                 " bits, expected at most ",
                 max_bits);
}

}  // namespace

void convert(const float* __restrict x, size_t n, BFloat16* __restrict y) {
  for (size_t i = 0; i < n; ++i) {
    y[i] = to_bf16(x[i]);
  }
}

void convert(const BFloat16* __restrict x, size_t n, float* __restrict y) {
  for (size_t i = 0; i < n; ++i) {
    y[i] = to_float(x[i]);
  }
}

void convert(const float* __restrict x, size_t n, Half* __restrict y) {
  size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  for (; i + 8 <= n; i += 8) {
    const __m256 wide = _mm256_loadu_ps(x + i);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(wide, wide, _CMP_UNORD_Q));
    const __m128i nan_lanes =
        _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    const __m128i codes = _mm_blendv_epi8(_mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT),
                                          _mm_set1_epi16(0x7fff),  // one NaN, as everywhere
                                          nan_lanes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), codes);
  }
#endif
  for (; i < n; ++i) {
    y[i] = to_half(x[i]);
  }
}

void convert(const Half* __restrict x, size_t n, float* __restrict y) {
  size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  for (; i + 8 <= n; i += 8) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(codes));
  }
#endif
  for (; i < n; ++i) {
    y[i] = to_float(x[i]);
  }
}

void encode_scaled(
    Format f, const float* x, float r, size_t n, uint8_t* codes, const RoundingMode& mode) {
  check_element_format("encode_scaled", f, 8);
  with_steering(f, mode, [&](auto steering) {
    if constexpr (!steering.value.wide) {
      encode_loop<steering.value>(f, x, r, n, codes, mode.draws);
    }
  });
}

void round_scaled(Format f, const float* x, float r, size_t n, float* y, const RoundingMode& mode) {
  check_element_format("round_scaled", f, 32);
  with_steering(
      f, mode, [&](auto steering) { round_loop<steering.value>(f, x, r, n, y, mode.draws); });
}

void decode_scaled(Format f, const uint8_t* codes, float s, size_t n, float* y) {
  check_element_format("decode_scaled", f, 8);
#if defined(__F16C__) && defined(__AVX2__)
  if (fits_in_half(f)) {
    const size_t done = decode_through_half(f, codes, s, n, y);
    codes += done;
    y += done;
    n -= done;
    if (n == 0) {
      return;
    }
  }
#endif
  with_steering(f, RoundingMode{}, [&](auto steering) {
    if constexpr (steering.value ==
                  Steering{steering.value.specials, false, Rounding::nearest, Overflow::saturate}) {
      decode_loop<steering.value>(f, codes, s, n, y);
    }
  });
}

}  // namespace halftone
