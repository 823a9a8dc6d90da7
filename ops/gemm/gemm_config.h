// Which kernel a GEMM runs on, and in which order it adds: pure host code, so that tests pin every
// choice without a GPU. The order (KOrder) is a function of sizes, formats and scaling alone,
// computed with an H200's 132 multiprocessors in mind on every machine, the CPU's emulation
// included. Kernel, tile and cluster follow from the order and the device, and never change a bit.
#pragma once

#include <string>
#include <string_view>

#include "ops/gemm/gemm.h"

namespace halftone {

enum class GemmKernel : uint8_t { simt, wmma_naive, wmma, mma, wgmma };
inline constexpr GemmKernel kGemmKernels[] = {
    GemmKernel::simt, GemmKernel::wmma_naive, GemmKernel::wmma, GemmKernel::mma, GemmKernel::wgmma};

/// "simt", "wmma_naive", ...
std::string_view name_of(GemmKernel kernel);

/// What the choice needs to know about a device.
struct DeviceCaps {
  int compute_capability = 90;  // 10 * major + minor
  int multiprocessors = 132;
};

/// One block's output tile. wgmma has several, in this order; the other kernels have one each.
struct GemmTile {
  int m = 0;
  int n = 0;
  friend bool operator==(const GemmTile&, const GemmTile&) = default;
};

struct GemmConfig {
  GemmKernel kernel = GemmKernel::simt;
  KOrder order;
  int64_t splits =
      1;  // ceil(K / order.split_k); with more than one, partial sums pass through a workspace
  GemmTile tile;
  int cluster = 1;  // wgmma: blocks, neighbours along M, that share the tiles of B
};

/// The problem's order of addition. Splits appear where whole tiles would leave multiprocessors
/// idle and K is long.
KOrder k_order(const GemmProblem& problem);

/// Why `kernel` does not take the problem on such a device; empty if it does. For messages and for
/// the choice.
std::string refusal(GemmKernel kernel, const GemmProblem& problem, const DeviceCaps& caps);

/// The fastest kernel that takes the problem, or the one named. Throws std::invalid_argument if the
/// one named, or every kernel, refuses.
GemmConfig choose_gemm(const GemmProblem& problem,
                       const DeviceCaps& caps,
                       std::string_view kernel = "");

}  // namespace halftone
