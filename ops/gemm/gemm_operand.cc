#include "ops/gemm/gemm_operand.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/convert.h"

namespace halftone::detail {
namespace {

/// round_to(kTf32, x), in fewer instructions: rounding may carry into the exponent and up to
/// infinity.
float nearest_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x0fff + (bits >> 13 & 1)) & ~0x1fffu;
  return x != x ? x : std::bit_cast<float>(rounded);
}

}  // namespace

template <class T>
OperandReader<T>::OperandReader(const GemmOperand& operand, bool is_a, int64_t group)
    : operand_(operand),
      group_(group),
      k_contiguous_(is_a != operand.transposed),
      storage_(Storage::as_is) {
  const Format& f = operand.format;
  if (std::is_same_v<T, double> || f == kFp32) {
    return;
  }
  if (f == kTf32) {
    storage_ = Storage::tf32;
  } else if (f == kBf16) {
    storage_ = Storage::bf16;
  } else if (f == kFp16) {
    storage_ = Storage::fp16;
  } else if (f.bits() <= 8) {
    storage_ = Storage::codes;
  }
}

template <class T>
void OperandReader<T>::read(
    int64_t batch, int64_t row, int64_t column, int64_t length, T* out) const {
  const auto stored = [&]<class S>(std::type_identity<S>) {
    return static_cast<const S*>(operand_.data) + offset(batch, row, column);
  };
  if constexpr (std::is_same_v<T, float>) {
    const auto n = static_cast<size_t>(length);
    switch (storage_) {
      case Storage::as_is:
        break;
      case Storage::tf32:
        std::transform(stored(std::type_identity<float>()),
                       stored(std::type_identity<float>()) + length,
                       out,
                       nearest_tf32);
        return;
      case Storage::bf16:
        return convert(stored(std::type_identity<BFloat16>()), n, out);
      case Storage::fp16:
        return convert(stored(std::type_identity<Half>()), n, out);
      case Storage::codes:
        return decode_scaled(operand_.format, stored(std::type_identity<uint8_t>()), 1.0f, n, out);
    }
  }
  std::copy_n(stored(std::type_identity<T>()), length, out);
}

template <class T>
GemmBlock<T> OperandReader<T>::block(int64_t batch,
                                     int64_t i0,
                                     int64_t count,
                                     int64_t padded,
                                     int64_t k0,
                                     int64_t depth,
                                     T* scratch) const {
  const int64_t row = k_contiguous_ ? i0 : k0;
  const int64_t column = k_contiguous_ ? k0 : i0;
  if (storage_ == Storage::as_is && count == padded) {
    const T* data = static_cast<const T*>(operand_.data);
    return {data + offset(batch, row, column), operand_.stride};
  }
  const int64_t stride = k_contiguous_ ? depth : padded;
  const int64_t length = k_contiguous_ ? depth : count;
  const int64_t runs = k_contiguous_ ? count : depth;
  for (int64_t r = 0; r < runs; ++r) {
    read(batch, row + r, column, length, scratch + r * stride);
    std::fill_n(scratch + r * stride + length, stride - length, T{0});
  }
  if (k_contiguous_) {
    std::fill_n(scratch + count * stride, (padded - count) * stride, T{0});
  }
  return {scratch, stride};
}

template class OperandReader<float>;
template class OperandReader<double>;

}  // namespace halftone::detail
