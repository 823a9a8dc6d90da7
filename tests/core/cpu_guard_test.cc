// The check for a lesser CPU, over described CPUs: this machine's own always passes, or the test
// would not run.
#include "core/cpu_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace halftone {
namespace {

constexpr uint64_t kSavesAvx = 0x07;
constexpr uint64_t kSavesAvx512 = 0xe7;

std::string message(CpuFeatures missing) {
  char text[1024];
  describe_missing_cpu_features(missing, text, sizeof text);
  return text;
}

CpuidResult everything(uint32_t, uint32_t) { return {~0u, ~0u, ~0u, ~0u}; }
CpuidResult nothing(uint32_t, uint32_t) { return {0, 0, 0, 0}; }

// Sandy Bridge as its manual has it: SSE4.2, POPCNT and AVX, but neither FMA, F16C, MOVBE nor any
// of leaf 7.
CpuidResult sandy_bridge(uint32_t leaf, uint32_t) {
  return leaf == 1 ? CpuidResult{0x206a7, 0, 0x1fbae3ff, 0xbfebfbff} : CpuidResult{0, 0, 0, 0};
}

TEST(CpuGuard, HostHasWhatThisBuildPromises) {
  EXPECT_EQ(kPromisedCpuFeatures & ~host_cpu_features(), 0u);
  EXPECT_EQ(message(0), "");
}

TEST(CpuGuard, PromiseFollowsTheCompilersFlags) {
#ifdef __AVX2__
  const std::string text = message(kPromisedCpuFeatures);
  for (const char* name : {" avx2", " fma", " f16c", " bmi", " bmi2", " lzcnt", " movbe"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << " is not in: " << text;
  }
#else
  EXPECT_EQ(kPromisedCpuFeatures, 0u);
#endif
}

TEST(CpuGuard, NamesWhatAnOlderCpuLacksAndHowToRebuild) {
  const CpuFeatures v3 = cpu_features(everything, kSavesAvx) & ~cpu_features(nothing, kSavesAvx);
  const std::string text = message(v3 & ~cpu_features(sandy_bridge, kSavesAvx));
  EXPECT_NE(text.find("lacks what the program was built for: movbe lzcnt bmi bmi2 f16c fma avx2"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("-DHALFTONE_CPU=baseline"), std::string::npos) << text;
}

TEST(CpuGuard, RegistersThatTheSystemDoesNotSaveDoNotCount) {
  const CpuFeatures none = cpu_features(everything, 0);
  const CpuFeatures avx = cpu_features(everything, kSavesAvx);
  const CpuFeatures avx512 = cpu_features(everything, kSavesAvx512);
  EXPECT_NE(message(avx & ~none).find(" avx2"), std::string::npos);
  EXPECT_EQ(message(avx & ~none).find(" bmi"), std::string::npos);
  EXPECT_EQ(message(avx512 & ~avx).find(" avx2"), std::string::npos);
  EXPECT_NE(message(avx512 & ~avx).find(" avx512f"), std::string::npos);
}

TEST(CpuGuard, EveryMessageFitsAndIsCutSafely) {
  EXPECT_NE(message(~CpuFeatures{0}).find("cmake --build build\n"), std::string::npos);
  char small[16];
  describe_missing_cpu_features(~CpuFeatures{0}, small, sizeof small);
  EXPECT_EQ(std::string(small), "halftone: this ");
}

}  // namespace
}  // namespace halftone
