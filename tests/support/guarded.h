// A buffer for outputs under test: its elements start as all-one bytes, which is NaN in every
// floating-point type and FP8, and guard bytes stand before and behind it. The destructor fails the
// test if a guard was overwritten.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace halftone::testing {

template <class T>
class Guarded {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  explicit Guarded(size_t size) : size_(size), bytes_(2 * kGuardBytes + size * sizeof(T), kGuard) {
    std::memset(static_cast<void*>(data()), kPoison, size * sizeof(T));
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { EXPECT_TRUE(guards_intact()); }

  size_t size() const { return size_; }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuardBytes); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + kGuardBytes); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  std::span<T> span() { return {data(), size_}; }

  /// Fails if a byte before or behind the elements has changed.
  ::testing::AssertionResult guards_intact() const {
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (bytes_[kGuardBytes - 1 - i] != kGuard) {
        return ::testing::AssertionFailure() << "written " << i + 1 << " bytes before the buffer";
      }
      if (bytes_[bytes_.size() - kGuardBytes + i] != kGuard) {
        return ::testing::AssertionFailure() << "written at byte " << i << " behind the buffer";
      }
    }
    return ::testing::AssertionSuccess();
  }

  /// Fails if an element still holds the poison it started with.
  ::testing::AssertionResult all_written() const {
    for (size_t i = 0; i < size_; ++i) {
      const unsigned char* element = bytes_.data() + kGuardBytes + i * sizeof(T);
      if (std::all_of(element, element + sizeof(T), [](unsigned char b) { return b == kPoison; })) {
        return ::testing::AssertionFailure()
               << "element " << i << " of " << size_ << " was never written";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr size_t kGuardBytes = 256;
  static constexpr unsigned char kGuard = 0xA5;
  static constexpr unsigned char kPoison = 0xFF;

  size_t size_;
  std::vector<unsigned char> bytes_;
};

}  // namespace halftone::testing
