// The features that the compiler was told it may use, read from its own macros; so this file has
// the flags of every other.
#include "core/cpu_guard.h"

namespace halftone {

namespace {

// A macro that is defined (as 1) has become "1" by the time it is made a string; any other is its
// own name.
constexpr bool is_one(const char* expansion) { return expansion[0] == '1'; }

constexpr CpuFeatures promised_features() {
  CpuFeatures features = 0;
  int bit = 0;
#define HALFTONE_STRING(text) #text
#define HALFTONE_PROMISE(name, macro, ...) \
  features |= CpuFeatures{is_one(HALFTONE_STRING(macro))} << bit++;
  HALFTONE_CPU_FEATURES(HALFTONE_PROMISE)
#undef HALFTONE_PROMISE
#undef HALFTONE_STRING
  return features;
}

}  // namespace

constinit const CpuFeatures kPromisedCpuFeatures = promised_features();

}  // namespace halftone
