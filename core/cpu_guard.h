// What the compiler was allowed to assume about the CPU, against what the CPU has: a program
// started on a lesser CPU ends with one clear message instead of an illegal instruction. Invariant:
// cpu_guard.cc is compiled for the baseline x86-64 and calls nothing that is inline in a header,
// since the linker could pick a copy of it with newer instructions.
// Source: Intel SDM, volume 2A, CPUID, and volume 1, 13.2 (XCR0: registers the system saves).
#pragma once

#include <cstddef>
#include <cstdint>

// X(name, the compiler's macro, CPUID leaf, subleaf, register, bit, registers the system must save)
#define HALFTONE_CPU_FEATURES(X)                                 \
  X("sse3", __SSE3__, 1, 0, ecx, 0, kNothing)                    \
  X("ssse3", __SSSE3__, 1, 0, ecx, 9, kNothing)                  \
  X("sse4.1", __SSE4_1__, 1, 0, ecx, 19, kNothing)               \
  X("sse4.2", __SSE4_2__, 1, 0, ecx, 20, kNothing)               \
  X("popcnt", __POPCNT__, 1, 0, ecx, 23, kNothing)               \
  X("movbe", __MOVBE__, 1, 0, ecx, 22, kNothing)                 \
  X("lzcnt", __LZCNT__, 0x80000001, 0, ecx, 5, kNothing)         \
  X("bmi", __BMI__, 7, 0, ebx, 3, kNothing)                      \
  X("bmi2", __BMI2__, 7, 0, ebx, 8, kNothing)                    \
  X("avx", __AVX__, 1, 0, ecx, 28, kYmm)                         \
  X("f16c", __F16C__, 1, 0, ecx, 29, kYmm)                       \
  X("fma", __FMA__, 1, 0, ecx, 12, kYmm)                         \
  X("avx2", __AVX2__, 7, 0, ebx, 5, kYmm)                        \
  X("gfni", __GFNI__, 7, 0, ecx, 8, kNothing)                    \
  X("avxvnni", __AVXVNNI__, 7, 1, eax, 4, kYmm)                  \
  X("avx512f", __AVX512F__, 7, 0, ebx, 16, kZmm)                 \
  X("avx512dq", __AVX512DQ__, 7, 0, ebx, 17, kZmm)               \
  X("avx512ifma", __AVX512IFMA__, 7, 0, ebx, 21, kZmm)           \
  X("avx512cd", __AVX512CD__, 7, 0, ebx, 28, kZmm)               \
  X("avx512bw", __AVX512BW__, 7, 0, ebx, 30, kZmm)               \
  X("avx512vl", __AVX512VL__, 7, 0, ebx, 31, kZmm)               \
  X("avx512vbmi", __AVX512VBMI__, 7, 0, ecx, 1, kZmm)            \
  X("avx512vbmi2", __AVX512VBMI2__, 7, 0, ecx, 6, kZmm)          \
  X("avx512vnni", __AVX512VNNI__, 7, 0, ecx, 11, kZmm)           \
  X("avx512bitalg", __AVX512BITALG__, 7, 0, ecx, 12, kZmm)       \
  X("avx512vpopcntdq", __AVX512VPOPCNTDQ__, 7, 0, ecx, 14, kZmm) \
  X("avx512fp16", __AVX512FP16__, 7, 0, edx, 23, kZmm)           \
  X("avx512bf16", __AVX512BF16__, 7, 1, eax, 5, kZmm)

namespace halftone {

/// A set of features: bit i stands for line i of the table above.
using CpuFeatures = uint32_t;

/// What the CPUID instruction returns.
struct CpuidResult {
  uint32_t eax, ebx, ecx, edx;
};

/// Asks for one leaf and subleaf; one that the CPU does not have gives zeros.
using CpuidFunction = CpuidResult (*)(uint32_t leaf, uint32_t subleaf);

/// The features of the CPU that `cpuid` describes. xcr0 says which registers the operating system
/// saves: AVX counts only where it saves ymm, AVX-512 only where it saves zmm and the masks too.
CpuFeatures cpu_features(CpuidFunction cpuid, uint64_t xcr0);

/// The features of this CPU; none on anything but x86-64.
CpuFeatures host_cpu_features();

/// The features that Halftone's objects were compiled for (cpu_promise.cc): data alone, safe to
/// read on a lesser CPU.
extern const CpuFeatures kPromisedCpuFeatures;

/// Writes the message for a CPU that lacks `missing` to `text`, cut to `size` bytes, final zero
/// included. Empty where nothing is missing.
void describe_missing_cpu_features(CpuFeatures missing, char* text, size_t size);

}  // namespace halftone
