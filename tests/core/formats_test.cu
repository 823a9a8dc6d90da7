// Codecs, scales and draws on the device: the host's bits, and for the formats that have an
// instruction those of NVIDIA's conversions too, so that kernels may use either.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/convert.h"
#include "core/cuda/check.cuh"
#include "core/loss_scaler.h"
#include "core/philox.h"
#include "core/scales.h"
#include "tests/support/bits.h"
#include "tests/support/device_array.cuh"

namespace halftone {
namespace {

using testing::DeviceArray;
using testing::same_bits;

class DeviceFormats : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

// Every value, tie and near-tie of fp16 and bf16 (and so of what is narrower), and random bits.
std::vector<float> source_values() {
  std::vector<float> x;
  for (uint32_t high = 0; high < 1u << 16; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
    for (const double part : {0.0, 0.5 - 0x1p-12, 0.5, 0.5 + 0x1p-12}) {
      x.push_back(static_cast<float>(decode_double(kFp16, high) * (1 + part * 0x1p-10)));
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 1 << 18; ++i) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  return x;
}

// out[i] = fn(i) for i < n, where fn runs on the device.
template <class T, class Fn>
__global__ void fill_kernel(T* out, size_t n, Fn fn) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < n) {
    out[i] = fn(i);
  }
}

template <class T, class Fn>
std::vector<T> on_device(size_t n, Fn fn) {
  DeviceArray<T> out(n);
  fill_kernel<<<static_cast<unsigned>((n + 255) / 256), 256>>>(out.data(), n, fn);
  HALFTONE_CUDA_CHECK(cudaGetLastError());
  HALFTONE_CUDA_CHECK(cudaDeviceSynchronize());
  return out.to_host();
}

template <class T, class Fn>
std::vector<T> on_host(size_t n, Fn fn) {
  std::vector<T> out(n);
  for (size_t i = 0; i < n; ++i) {
    out[i] = fn(i);
  }
  return out;
}

struct Encode {
  Format f;
  Rounding rounding;
  Overflow overflow;
  const float* x;
  const uint32_t* draws;
  HALFTONE_HD uint32_t operator()(size_t i) const {
    return encode(f, x[i], rounding, overflow, draws[i]);
  }
};

template <Format kFormat>  // folded by the compiler, as in a kernel
struct EncodeConstant {
  const float* x;
  HALFTONE_HD uint32_t operator()(size_t i) const { return encode(kFormat, x[i]); }
};

struct Decode {
  Format f;
  HALFTONE_HD uint32_t operator()(size_t i) const {
    return std::bit_cast<uint32_t>(decode(f, static_cast<uint32_t>(i)));
  }
};

TEST_F(DeviceFormats, CodecsGiveTheHostsBits) {
  const std::vector<float> x = source_values();
  std::vector<uint32_t> draws(x.size());
  fill_draws({philox_key(1, "test")}, 0, draws.size(), draws.data());
  DeviceArray<float> dx(x);
  DeviceArray<uint32_t> ddraws(draws);
  for (const char* name : {"fp32",
                           "tf32",
                           "bf16",
                           "fp16",
                           "e5m2",
                           "e4m3",
                           "e3m2",
                           "e2m3",
                           "e2m1",
                           "e8m0",
                           "e3m4",
                           "e4m3i",
                           "e5m12",
                           "e8m5",
                           "e1m1",
                           "e2m0"}) {
    const Format f = parse_format(name);
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::zero}) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::ieee}) {
        const auto device =
            on_device<uint32_t>(x.size(), Encode{f, rounding, overflow, dx.data(), ddraws.data()});
        const auto host =
            on_host<uint32_t>(x.size(), Encode{f, rounding, overflow, x.data(), draws.data()});
        ASSERT_TRUE(same_bits(device, host)) << name << " rounding " << int(rounding);
      }
    }
    const size_t codes = size_t{1} << (f.bits() < 19 ? f.bits() : 19);
    ASSERT_TRUE(
        same_bits(on_device<uint32_t>(codes, Decode{f}), on_host<uint32_t>(codes, Decode{f})))
        << name;
  }
}

template <Format kFormat>
void check_constant(const std::vector<float>& x, const float* dx) {
  EXPECT_TRUE(same_bits(on_device<uint32_t>(x.size(), EncodeConstant<kFormat>{dx}),
                        on_host<uint32_t>(x.size(), EncodeConstant<kFormat>{x.data()})))
      << to_string(kFormat);
}

TEST_F(DeviceFormats, ConstantFormatsGiveTheHostsBits) {
  const std::vector<float> x = source_values();
  DeviceArray<float> dx(x);
  check_constant<kTf32>(x, dx.data());
  check_constant<kBf16>(x, dx.data());
  check_constant<kFp16>(x, dx.data());
  check_constant<kE5M2>(x, dx.data());
  check_constant<kE4M3>(x, dx.data());
  check_constant<kE3M2>(x, dx.data());
  check_constant<kE2M3>(x, dx.data());
  check_constant<kE2M1>(x, dx.data());
}

// NVIDIA's conversions, one format each.
struct Instruction {
  Format f;
  const float* x;
  __device__ uint32_t operator()(size_t i) const {
    switch (f.bits() * 10 + f.mantissa_bits) {
      case 83:
        return __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
      case 82:
        return __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
      case 167:
        return __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
      default:
        return __half_as_ushort(__float2half_rn(x[i]));
    }
  }
};

TEST_F(DeviceFormats, InstructionsGiveTheCodecsBits) {
  const std::vector<float> x = source_values();
  DeviceArray<float> dx(x);
  int major = 0, minor = 0;
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  HALFTONE_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  for (const char* name : {"e4m3", "e5m2", "bf16", "fp16"}) {
    const Format f = parse_format(name);
    if (f.bits() == 8 && 10 * major + minor < 89) {
      continue;  // converted in software there, with another NaN
    }
    const auto device = on_device<uint32_t>(x.size(), Instruction{f, dx.data()});
    const auto host = on_host<uint32_t>(x.size(), [&](size_t i) { return encode(f, x[i]); });
    EXPECT_TRUE(same_bits(device, host)) << name;
  }
}

// core/convert.h, which takes the instructions on a device.
struct To16Bits {
  bool half;
  const float* x;
  HALFTONE_HD uint32_t operator()(size_t i) const {
    return half ? to_half(x[i]).bits : to_bf16(x[i]).bits;
  }
};

struct FromHalf {
  HALFTONE_HD uint32_t operator()(size_t i) const {
    const float value = to_float(Half{static_cast<uint16_t>(i)});
    return value != value ? 0x7fffffffu : std::bit_cast<uint32_t>(value);  // of many NaNs
  }
};

TEST_F(DeviceFormats, ConversionsGiveTheHostsBits) {
  const std::vector<float> x = source_values();
  DeviceArray<float> dx(x);
  for (const bool half : {false, true}) {
    const auto device = on_device<uint32_t>(x.size(), To16Bits{half, dx.data()});
    const auto host = on_host<uint32_t>(x.size(), To16Bits{half, x.data()});
    EXPECT_TRUE(same_bits(device, host)) << (half ? "fp16" : "bf16");
  }
  constexpr size_t kCodes = 1 << 16;
  EXPECT_TRUE(
      same_bits(on_device<uint32_t>(kCodes, FromHalf{}), on_host<uint32_t>(kCodes, FromHalf{})));
}

struct Scale {
  ScaleRule rule;
  Format f;
  const float* amax;
  HALFTONE_HD uint32_t operator()(size_t i) const {
    const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(amax[i]) & 0x7fffffffu);
    if (rule == ScaleRule::e4m3) {
      const float g = nvfp4_tensor_scale(f, 1.7f);
      return std::bit_cast<uint32_t>(nvfp4_block_scale(nvfp4_block_code(f, a, g), g));
    }
    const float s = block_scale(rule, f, a);
    const float r = reciprocal_scale(s);
    return r != r ? 0x7fffffffu : std::bit_cast<uint32_t>(s) ^ std::bit_cast<uint32_t>(r);
  }
};

TEST_F(DeviceFormats, ScalesGiveTheHostsBits) {
  const std::vector<float> x = source_values();
  DeviceArray<float> dx(x);
  for (const ScaleRule rule : {ScaleRule::fp32,
                               ScaleRule::e8m0,
                               ScaleRule::e8m0_ceil,
                               ScaleRule::e8m0_floor,
                               ScaleRule::e4m3}) {
    for (const Format f : {kE4M3, kE5M2, kE2M1}) {
      const auto device = on_device<uint32_t>(x.size(), Scale{rule, f, dx.data()});
      auto host = on_host<uint32_t>(x.size(), Scale{rule, f, x.data()});
      for (size_t i = 0; i < x.size(); ++i) {  // the product of a NaN: payloads differ
        if ((host[i] & 0x7fffffffu) > 0x7f800000u && (device[i] & 0x7fffffffu) > 0x7f800000u) {
          host[i] = device[i];
        }
      }
      ASSERT_TRUE(same_bits(device, host)) << int(rule) << " of " << to_string(f);
    }
  }
}

struct Draw {
  RandomStream stream;
  HALFTONE_HD uint32_t operator()(size_t i) const { return stream.draw(i); }
};

TEST_F(DeviceFormats, DrawsGiveTheHostsBits) {
  const Draw draw{{philox_key(1, "dropout"), 7, 2}};
  EXPECT_TRUE(same_bits(on_device<uint32_t>(4099, draw), on_host<uint32_t>(4099, draw)));
}

struct Advance {
  HALFTONE_HD float operator()(size_t i) const {
    const LossScalerConfig config{.init = 4, .ceiling = 16, .growth_interval = 2};
    LossScalerState state{.scale = config.init};
    for (int step = 0; step < 12; ++step) {
      state = advance(config, state, (i >> step & 1) == 0);
    }
    return state.scale + 1000 * state.skips_in_row + 100 * state.growth;
  }
};

TEST_F(DeviceFormats, LossScalerWalksAsOnTheHost) {
  EXPECT_TRUE(same_bits(on_device<float>(4096, Advance{}), on_host<float>(4096, Advance{})));
}

}  // namespace
}  // namespace halftone
