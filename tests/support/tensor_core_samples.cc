#include "tests/support/tensor_core_samples.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace halftone::testing {
namespace {

/// What the operands of one sample look like.
enum Kind {
  kNormal,      // standard normal
  kSpread,      // times 2^-8 to 2^8
  kAnything,    // any finite code
  kCancel,      // every second product is minus its predecessor, or nearly
  kTiny,        // subnormals and the lowest exponents
  kSparse,      // half the products zero, of either sign, the other factor any finite code
  kHuge,        // the top exponents, positive
  kHugeSigned,  // the same, either sign
  kSpecial,     // normal with an infinity or a NaN or both
  kZeros,       // every product zero
  kOneLarge,    // one product far above the others
  kMixed,       // each operand of its own kind
  kKinds,
};

class Source {
 public:
  Source(const TensorCoreForm& form, uint32_t seed) : form_(form), rng_(seed) {}

  TensorCoreSample next() {
    const Kind kind = static_cast<Kind>(pick(kKinds));
    const int n = form_.products();
    std::array<uint32_t, 32> a{}, b{};
    for (int k = 0; k < n; ++k) {
      a[k] = code(form_.a, kind, k);
      b[k] = code(form_.b, kind, k);
      if (kind == kCancel && k % 2 == 1) {
        a[k] = a[k - 1] ^ sign(form_.a) ^ (pick(3) == 0 ? 1 : 0);
        b[k] = b[k - 1];
      }
      if (kind == kZeros || (kind == kSparse && pick(2))) {
        const bool zero_a = pick(2);
        a[k] = zero_a ? zero(form_.a) : anything(form_.a);
        b[k] = zero_a ? anything(form_.b) : zero(form_.b);
      }
    }
    if (kind == kSpecial) {
      for (uint32_t i = 0; i <= pick(3); ++i) {
        a[pick(n)] = special(form_.a);
        if (pick(3) == 0) {
          b[pick(n)] = pick(2) == 0 ? special(form_.b) : 0;
        }
      }
    }
    TensorCoreSample sample;
    pack(form_.a, a, sample.a);
    pack(form_.b, b, sample.b);
    sample.c = addend(kind, a, b);
    return sample;
  }

 private:
  static uint32_t sign(const Format& f) { return f.magnitude_mask() + 1; }
  uint32_t pick(uint32_t count) { return rng_() % count; }

  uint32_t special(const Format& f) {
    const uint32_t nan = f.nan_code() | (pick(2) ? sign(f) : 0);
    return f.has_infinity() && pick(3) > 0 ? f.infinity_code() | (pick(2) ? sign(f) : 0) : nan;
  }

  uint32_t zero(const Format& f) { return pick(2) ? sign(f) : 0; }

  uint32_t anything(const Format& f) { return pick(f.max_code() + 1) | (pick(2) ? sign(f) : 0); }

  uint32_t code(const Format& f, Kind kind, int k) {
    const uint32_t s = pick(2) ? sign(f) : 0;
    const uint32_t binade = 1u << f.mantissa_bits;
    switch (kind) {
      case kSpread:
        return encode(f, std::ldexp(normal_(rng_), static_cast<int>(pick(17)) - 8));
      case kAnything:
        return anything(f);
      case kTiny:
        return pick(4 * binade) | s;
      case kHuge:
        return f.max_code() - pick(2 * binade);
      case kHugeSigned:
        return (f.max_code() - pick(2 * binade)) | s;
      case kOneLarge:
        return encode(f, std::ldexp(normal_(rng_), k == 3 ? 6 : -static_cast<int>(pick(10))));
      case kMixed:
        return pick(12) == 0 ? anything(f) : code(f, static_cast<Kind>(pick(kHuge)), k);
      default:
        return encode(f, normal_(rng_));
    }
  }

  void pack(const Format& f,
            const std::array<uint32_t, 32>& codes,
            std::array<uint8_t, 32>& out) const {
    const int bytes = form_.element_bytes();
    for (int k = 0; k < form_.products(); ++k) {
      const uint32_t stored = f == kTf32 ? codes[k] << 13 : codes[k];
      std::memcpy(out.data() + k * bytes, &stored, bytes);
    }
  }

  uint32_t addend(Kind kind, const std::array<uint32_t, 32>& a, const std::array<uint32_t, 32>& b) {
    double sum = 0;
    for (int k = 0; k < form_.products(); ++k) {
      sum += decode_double(form_.a, a[k]) * decode_double(form_.b, b[k]);
    }
    const Format f = form_.acc == Accumulator::fp16 ? kFp16 : kFp32;
    switch (pick(kind == kSpecial ? 9 : 8)) {
      case 0:
        return pick(2) ? sign(f) : 0;
      case 1:
        return anything(f);
      case 2:
        return pick(1u << (f.mantissa_bits + 1)) |
               (pick(2) ? sign(f) : 0);  // subnormal or just above
      case 3:
        return encode(f, -sum) ^ pick(2);
      case 4:
        return encode(f, sum * std::ldexp(1.0, static_cast<int>(pick(60)) - 30));
      case 8:
        return special(f);
      default:
        return encode(f, std::ldexp(normal_(rng_), static_cast<int>(pick(13)) - 6));
    }
  }

  const TensorCoreForm& form_;
  std::mt19937 rng_;
  std::normal_distribution<float> normal_;
};

}  // namespace

std::vector<TensorCoreSample> random_samples(const TensorCoreForm& form,
                                             size_t count,
                                             uint32_t seed) {
  Source source(form, seed);
  std::vector<TensorCoreSample> samples(count);
  for (TensorCoreSample& sample : samples) {
    sample = source.next();
  }
  return samples;
}

DecodedSample decode_sample(const TensorCoreForm& form, const TensorCoreSample& sample) {
  DecodedSample decoded{};
  const int bytes = form.element_bytes();
  const auto value = [&](const Format& f, const std::array<uint8_t, 32>& stored, int k) {
    uint32_t code = 0;
    std::memcpy(&code, stored.data() + k * bytes, bytes);
    return decode(f, f == kTf32 ? code >> 13 : code);
  };
  for (int k = 0; k < form.products(); ++k) {
    decoded.a[k] = value(form.a, sample.a, k);
    decoded.b[k] = value(form.b, sample.b, k);
  }
  decoded.c =
      form.acc == Accumulator::fp16 ? decode(kFp16, sample.c) : std::bit_cast<float>(sample.c);
  return decoded;
}

uint32_t model_result(const TensorCoreForm& form, const TensorCoreSample& sample) {
  const DecodedSample s = decode_sample(form, sample);
  const TensorCoreUnit unit = tensor_core_unit(form.acc, form.a, form.b);
  const float d = tensor_core_step(unit, s.a.data(), s.b.data(), s.c);
  return form.acc == Accumulator::fp16 ? encode(kFp16, d) : std::bit_cast<uint32_t>(d);
}

}  // namespace halftone::testing
