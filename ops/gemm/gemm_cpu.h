// The CPU side of a GEMM, shared by gemm.cc, the two kernels and their tests. A problem that
// reaches these has been checked.
#pragma once

#include <string_view>

#include "ops/gemm/gemm.h"

namespace halftone::detail {

/// Throws std::invalid_argument where the problem is malformed, whatever the kernel: the message
/// names what was expected and what was found.
void check_gemm(const GemmProblem& problem);

/// acc = fp32 (or f64 operands): Eigen. Every output is sum over chunks of K, ascending, of (sum
/// over the chunk, ascending), each product added by one fused multiply-add where the CPU has it,
/// chunks cut at multiples of 256 within an interval. So an output depends on its own row and
/// column alone, not on M, N, the tile, the threads or the caches; and where products are exact
/// (16-bit and narrower operands) not on the instruction set either.
void gemm_eigen(const GemmProblem& problem);

/// acc = fp16, hopper16, ampere16, hopper8: the Tensor Core's arithmetic in the problem's KOrder,
/// bit for bit.
void gemm_emulated(const GemmProblem& problem);

/// The problem on the GPU its pointers live on; `kernel` empty: gemm_config chooses. N and batch
/// are above 0; M may be 0 where column sums are wanted, which are zero then. Defined where CUDA is
/// built.
void gemm_cuda(const GemmProblem& problem, const Device& device, std::string_view kernel);

}  // namespace halftone::detail
