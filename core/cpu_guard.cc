#include "core/cpu_guard.h"

#include <cstdio>
#include <cstdlib>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace halftone {

namespace {

// What the operating system must save, as bits of XCR0.
constexpr uint64_t kNothing = 0;
constexpr uint64_t kYmm = 0x06;  // bits 1 and 2
constexpr uint64_t kZmm = 0xe6;  // bits 5 to 7 too: masks, upper halves, registers 16 to 31

struct Feature {
  const char* name;
  uint32_t leaf;
  uint32_t subleaf;
  uint32_t CpuidResult::*reg;
  int bit;
  uint64_t needs;
};

#define HALFTONE_FEATURE(name, macro, leaf, subleaf, reg, bit, needs) \
  {name, leaf, subleaf, &CpuidResult::reg, bit, needs},
constexpr Feature kFeatures[] = {HALFTONE_CPU_FEATURES(HALFTONE_FEATURE)};
#undef HALFTONE_FEATURE
constexpr int kNumFeatures = sizeof(kFeatures) / sizeof(kFeatures[0]);
static_assert(kNumFeatures <= 32, "CpuFeatures has 32 bits");

#ifdef __x86_64__
CpuidResult host_cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidResult result{};
  __get_cpuid_count(leaf, subleaf, &result.eax, &result.ebx, &result.ecx, &result.edx);
  return result;
}

uint64_t host_xcr0() {
  constexpr uint32_t kOsxsave = 1u << 27;  // the operating system allows xgetbv
  if ((host_cpuid(1, 0).ecx & kOsxsave) == 0) {
    return 0;
  }
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}
#endif

}  // namespace

CpuFeatures cpu_features(CpuidFunction cpuid, uint64_t xcr0) {
  CpuFeatures features = 0;
  for (int i = 0; i < kNumFeatures; ++i) {
    const Feature& feature = kFeatures[i];
    const CpuidResult result = cpuid(feature.leaf, feature.subleaf);
    if ((result.*feature.reg >> feature.bit & 1) != 0 && (xcr0 & feature.needs) == feature.needs) {
      features |= CpuFeatures{1} << i;
    }
  }
  return features;
}

CpuFeatures host_cpu_features() {
#ifdef __x86_64__
  return cpu_features(host_cpuid, host_xcr0());
#else
  return 0;
#endif
}

void describe_missing_cpu_features(CpuFeatures missing, char* text, size_t size) {
  text[0] = '\0';
  if (missing == 0) {
    return;
  }
  char names[512];  // all of them together take 250
  int used = 0;
  for (int i = 0; i < kNumFeatures; ++i) {
    if ((missing >> i & 1) != 0) {
      used += std::snprintf(names + used, sizeof names - used, " %s", kFeatures[i].name);
    }
  }
  std::snprintf(text,
                size,
                "halftone: this CPU lacks what the program was built for:%s\n"
                "Rebuild it for any x86-64: cmake -S . -B build -DHALFTONE_CPU=baseline && "
                "cmake --build build\n",
                names);
}

// Every program is linked with --undefined for this name (CMakeLists.txt). 101 is the earliest
// priority that programs may use: before every other constructor of the project.
extern "C" __attribute__((constructor(101))) void halftone_refuse_lesser_cpu() {
  char text[1024];
  describe_missing_cpu_features(kPromisedCpuFeatures & ~host_cpu_features(), text, sizeof text);
  if (text[0] != '\0') {
    std::fputs(text, stderr);
    std::_Exit(1);
  }
}

}  // namespace halftone
