// A term is truncated by multiplying it with 2^(F - E), exactly, and converting to int32 toward
// zero; 17 terms below 2^27 fit. That takes every lane's largest exponent E to be moderate, as it
// nearly always is, and products in float to be exact or far below the last bit kept, as they are
// then. A step in which a lane is not so, specials included, is left to tensor_core_step.
#include "ops/gemm/tensor_core_strip.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace halftone {
namespace {

constexpr int kHalf = 8;  // lanes of one vector of 32-bit elements
using Floats [[gnu::vector_size(32)]] = float;
using Ints [[gnu::vector_size(32)]] = int32_t;
using Shorts [[gnu::vector_size(32)]] = int16_t;
using HalfShorts [[gnu::vector_size(16)]] = int16_t;

constexpr int kLowest = -100;  // of a lane with terms, for the fast path
constexpr int kHighest = 120;
constexpr int kEmpty = -5000;        // a lane whose terms are all zero is below
constexpr int kMaxSum = 0x78000000;  // of the products; leaves room for the addend

template <class V, class T>
V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}

template <class V, class W>
V bits_as(const W& w) {
  return std::bit_cast<V>(w);
}

bool any(const Ints& mask) {
  Ints folded = mask;
  int32_t all = 0;
  for (int i = 0; i < kHalf; ++i) {
    all |= folded[i];
  }
  return all != 0;
}

/// out = sum * 2^(E - F) as the unit stores it.
void store_result(const TensorCoreUnit& unit, const Ints& sum, const Ints& exponent, Floats& out) {
  const Ints magnitude = sum < 0 ? -sum : sum;
  Ints bits = bits_as<Ints>(__builtin_convertvector(magnitude, Floats));
  bits += __builtin_convertvector(bits_as<Floats>(bits), Ints) > magnitude;  // rounded up: one less
  if (unit.fp16_result) {
    // Round to odd, so that rounding again below is the only one that shows.
    bits |= (__builtin_convertvector(bits_as<Floats>(bits), Ints) != magnitude) & 1;
  } else {
    bits &= -1 << (23 - unit.result_fraction_bits);
  }
  Floats value =
      bits_as<Floats>(bits) * bits_as<Floats>((exponent + (127 - unit.fraction_bits)) << 23);
  if (unit.fp16_result) {
    for (int i = 0; i < kHalf; ++i) {
      value[i] = round_to(kFp16, value[i]);
    }
  }
  const Ints is_zero = value == 0.0f;
  out = bits_as<Floats>(bits_as<Ints>(value) | (sum & ~is_zero & INT32_MIN));
}

template <int kProducts>
class Strip {
 public:
  explicit Strip(const TensorCoreUnit& unit) : unit_(unit) {}

  void run(int64_t instructions,
           const float* a,
           const int16_t* a_exponents,
           const float* b,
           const int16_t* b_exponents,
           float* c) const {
    Floats low = load<Floats>(c);
    Floats high = load<Floats>(c + kHalf);
    for (int64_t i = 0; i < instructions; ++i) {
      Floats next_low, next_high;
      if (fast_step(a, a_exponents, b, b_exponents, low, high, next_low, next_high)) {
        low = next_low;
        high = next_high;
      } else {
        slow_step(a, b, low);
        slow_step(a, b + kHalf, high);
      }
      a += kProducts;
      a_exponents += kProducts;
      b += kProducts * kStripColumns;
      b_exponents += kProducts * kStripColumns;
    }
    std::memcpy(c, &low, sizeof(low));
    std::memcpy(c + kHalf, &high, sizeof(high));
  }

 private:
  /// The largest exponent of a lane's products and addend.
  static Ints largest_exponent(const HalfShorts& products, const Floats& c) {
    const Ints field = (bits_as<Ints>(c) >> 23) & 0xFF;
    const Ints addend = c == 0.0f ? Ints{} + kZeroExponent : field - 127;
    const Ints wide = __builtin_convertvector(products, Ints);
    return wide > addend ? wide : addend;
  }

  bool fast_step(const float* a,
                 const int16_t* a_exponents,
                 const float* b,
                 const int16_t* b_exponents,
                 const Floats& low,
                 const Floats& high,
                 Floats& next_low,
                 Floats& next_high) const {
    Shorts exponents = load<Shorts>(b_exponents) + a_exponents[0];
    for (int k = 1; k < kProducts; ++k) {
      const Shorts e = load<Shorts>(b_exponents + k * kStripColumns) + a_exponents[k];
      exponents = e > exponents ? e : exponents;
    }
    const std::array<HalfShorts, 2> halves = bits_as<std::array<HalfShorts, 2>>(exponents);
    Ints e_low = largest_exponent(halves[0], low);
    Ints e_high = largest_exponent(halves[1], high);
    const auto risky = [](const Ints& e) {
      return (e > kHighest) | ((e < kLowest) & (e > kEmpty));
    };
    if (any(risky(e_low) | risky(e_high))) {
      return false;
    }
    e_low = e_low < kLowest ? Ints{} + kLowest : e_low;
    e_high = e_high < kLowest ? Ints{} + kLowest : e_high;
    const Floats scale_low = bits_as<Floats>((127 + unit_.fraction_bits - e_low) << 23);
    const Floats scale_high = bits_as<Floats>((127 + unit_.fraction_bits - e_high) << 23);
    Ints sum_low{};
    Ints sum_high{};
    for (int k = 0; k < kProducts; ++k) {
      const Floats b_low = load<Floats>(b + k * kStripColumns);
      const Floats b_high = load<Floats>(b + k * kStripColumns + kHalf);
      sum_low += __builtin_convertvector(b_low * a[k] * scale_low, Ints);
      sum_high += __builtin_convertvector(b_high * a[k] * scale_high, Ints);
    }
    const auto large = [](const Ints& sum) { return (sum > kMaxSum) | (sum < -kMaxSum); };
    if (any(large(sum_low) | large(sum_high))) {
      return false;
    }
    sum_low += __builtin_convertvector(low * scale_low, Ints);
    sum_high += __builtin_convertvector(high * scale_high, Ints);
    store_result(unit_, sum_low, e_low, next_low);
    store_result(unit_, sum_high, e_high, next_high);
    return true;
  }

  void slow_step(const float* a, const float* b, Floats& c) const {
    for (int j = 0; j < kHalf; ++j) {
      std::array<float, kProducts> column;
      for (int k = 0; k < kProducts; ++k) {
        column[k] = b[k * kStripColumns + j];
      }
      c[j] = tensor_core_step(unit_, a, column.data(), c[j]);
    }
  }

  const TensorCoreUnit& unit_;
};

}  // namespace

void tensor_core_strip(const TensorCoreUnit& unit,
                       int64_t instructions,
                       const float* a,
                       const int16_t* a_exponents,
                       const float* b,
                       const int16_t* b_exponents,
                       float* c) {
  const auto run = [&](const auto& strip) {
    strip.run(instructions, a, a_exponents, b, b_exponents, c);
  };
  switch (unit.products) {
    case 4:
      return run(Strip<4>(unit));
    case 8:
      return run(Strip<8>(unit));
    case 16:
      return run(Strip<16>(unit));
    case 32:
      return run(Strip<32>(unit));
    default:
      throw std::logic_error("tensor_core_strip: no such unit");
  }
}

}  // namespace halftone
