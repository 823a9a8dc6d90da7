// The entry point of every matrix product: checks the problem, then hands it to a kernel of the
// device it lives on.
#include "ops/gemm/gemm.h"

#include <algorithm>

#include "core/check.h"
#include "ops/gemm/gemm_cpu.h"

namespace halftone {
namespace {

/// The first multiple of `block` past k, at most `limit` (a block may be GemmScales::kWhole).
int64_t next_multiple(int64_t k, int64_t block, int64_t limit) {
  return block >= limit ? limit : std::min((k / block + 1) * block, limit);
}

/// Whether every value of `narrow` is a value of `wide`.
bool holds(const Format& wide, const Format& narrow) {
  return narrow.mantissa_bits <= wide.mantissa_bits && narrow.max_finite() <= wide.max_finite() &&
         narrow.min_subnormal() >= wide.min_subnormal();
}

void gemm_cpu(const GemmProblem& problem, std::string_view kernel) {
  const std::string_view chosen = problem.acc == Accumulator::fp32 ? "eigen" : "emulated";
  HALFTONE_CHECK(kernel.empty() || kernel == "eigen" || kernel == "emulated",
                 "gemm: the CPU has no kernel '",
                 kernel,
                 "'; expected eigen or emulated");
  HALFTONE_CHECK(kernel.empty() || kernel == chosen,
                 "gemm: kernel '",
                 kernel,
                 "' does not take acc=",
                 name_of(problem.acc),
                 "; the CPU's kernel for it is ",
                 chosen);
  if (problem.acc == Accumulator::fp32) {
    detail::gemm_eigen(problem);
  } else {
    detail::gemm_emulated(problem);
  }
}

}  // namespace

std::string_view name_of(Accumulator acc) {
  switch (acc) {
    case Accumulator::fp32:
      return "fp32";
    case Accumulator::fp16:
      return "fp16";
    case Accumulator::hopper16:
      return "hopper16";
    case Accumulator::ampere16:
      return "ampere16";
    case Accumulator::hopper8:
      return "hopper8";
  }
  throw std::logic_error("name_of: not an Accumulator");
}

Format compute_format(const Format& a, const Format& b) {
  for (const Format& wide : {kFp16, kBf16, kTf32}) {
    if (holds(wide, a) && holds(wide, b)) {
      return wide;
    }
  }
  return kFp32;
}

int64_t interval_end(const GemmProblem& problem, const KOrder& order, int64_t k) {
  int64_t end = next_multiple(k, std::max<int64_t>(order.split_k, 1), problem.K);
  if (order.promote > 0) {
    end = std::min(end, k + order.promote);
  }
  end = next_multiple(k, problem.a.scales.block_k, end);
  return next_multiple(k, problem.b.scales.block_k, end);
}

void gemm(const GemmProblem& problem, const Device& device, std::string_view kernel) {
  detail::check_gemm(problem);
  const bool has_outputs = problem.M > 0 || problem.epilogue.column_sums != nullptr;
  if (!has_outputs || problem.N == 0 || problem.batch == 0) {
    return;
  }
  if (device.is_cpu()) {
    gemm_cpu(problem, kernel);
  } else if constexpr (kHasCuda) {
    detail::gemm_cuda(problem, device, kernel);
  } else {
    throw_no_cuda("gemm");
  }
}

}  // namespace halftone
