// Hopper's asynchronous machinery as thin wrappers over PTX: mbarriers with raw parity waits, TMA
// loads (multicast to a cluster too) and stores, proxy fences, setmaxnreg, stmatrix, and wgmma
// m64nNk16/k8 with FP32 accumulators. Compiles everywhere; the instructions need sm_90a, so callers
// guard their kernels with HALFTONE_SM90A. Source: PTX ISA 9.0, sections 9.7.13 (mbarrier,
// cp.async.bulk.tensor) and 9.7.16 (wgmma).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HALFTONE_SM90A 1
#endif

namespace halftone::sm90 {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- mbarriers. A wait names the parity of the phase it waits for; a fresh barrier is in phase 0,
// so waiting for parity 1 passes.

__device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals));
}

/// Makes initialised barriers visible to the other blocks of the cluster and to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// One arrival that also announces `bytes` still to come from the copy engine.
__device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}

/// Arrives at the same barrier of block `rank` of the cluster (this block's own rank included).
__device__ __forceinline__ void barrier_arrive_at(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar),
      "r"(rank)
      : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ bool barrier_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
  while (!barrier_try_wait(bar, parity)) {
  }
}

// ---- Clusters and named barriers.

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of the cluster meet. Orders no memory: barriers of the ring and fence_barrier_init
/// do that, and a release here would wait for every store to reach the whole device.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;" ::
                   : "memory");
}

__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- The copy engine. Maps are always three-dimensional: (contiguous, row, matrix of the batch).

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load(
    uint32_t to, const CUtensorMap* map, uint32_t bar, int x, int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map),
      "r"(bar),
      "r"(x),
      "r"(row),
      "r"(matrix)
      : "memory");
}

/// Writes to the same offset, and signals the same barrier, in every block of the cluster that
/// `mask` names.
__device__ __forceinline__ void tma_load_multicast(
    uint32_t to, const CUtensorMap* map, uint32_t bar, int x, int row, int matrix, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes."
      "multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map),
      "r"(bar),
      "r"(x),
      "r"(row),
      "r"(matrix),
      "h"(mask)
      : "memory");
}

/// Elements outside the tensor are not written.
__device__ __forceinline__ void tma_store(
    const CUtensorMap* map, uint32_t from, int x, int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(from),
      "r"(x),
      "r"(row),
      "r"(matrix)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Until at most kPending of this thread's stores have still to read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void tma_store_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Orders this thread's ordinary shared-memory accesses before those of the copy engine and the
/// Tensor Cores.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Programmatic dependent launch: a kernel may start while the one before it in the stream
// finishes.

/// Until the kernels this one depends on have finished and their writes are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- stmatrix: four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the rows of matrix i.

__device__ __forceinline__ void stmatrix_x4(
    uint32_t row_address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(r0),
      "r"(r1),
      "r"(r2),
      "r"(r3)
      : "memory");
}

// ---- wgmma.

/// Shared-memory matrix descriptor, 128-byte swizzle. Both offsets in bytes. K-major: `stride`
/// leads to the next 8 rows and `leading` is ignored. MN-major: `stride` leads to the next 8 of K,
/// `leading` to the next 64 of MN (16-bit).
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address,
                                                      uint32_t leading,
                                                      uint32_t stride) {
  constexpr uint64_t kSwizzle128 = 1;
  return (uint64_t{(address & 0x3FFFF) >> 4}) | (uint64_t{leading >> 4} << 16) |
         (uint64_t{stride >> 4} << 32) | (kSwizzle128 << 62);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The accumulator registers of an instruction, 32 at a time: as text and as operands. d[i] of lane
// l of warp w is element (16 w + l/4 + 8 (i/2 % 2), 8 (i/4) + 2 (l%4) + i%2); see
// ops/gemm/fragments.h.
#define HALFTONE_WGMMA_TEXT_0                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HALFTONE_WGMMA_TEXT_1                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HALFTONE_WGMMA_TEXT_2                                                          \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define HALFTONE_WGMMA_TEXT_3                                                                      \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HALFTONE_WGMMA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HALFTONE_WGMMA_16(i) \
  HALFTONE_WGMMA_4(i), HALFTONE_WGMMA_4(i + 4), HALFTONE_WGMMA_4(i + 8), HALFTONE_WGMMA_4(i + 12)
#define HALFTONE_WGMMA_32(i) HALFTONE_WGMMA_16(i), HALFTONE_WGMMA_16(i + 16)

/// d += A B, or = A B. A: 64 x 16 (tf32: 8), B: 16 x N, both by descriptor; kAmn, kBmn: the operand
/// is MN-major.
template <class In, int N, bool kAmn, bool kBmn>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  static_assert(N == 64 || N == 128 || N == 192 || N == 256, "no wrapper for this N");
  static_assert(sizeof(In) == 2 || !(kAmn || kBmn), "tf32 operands are K-major");
  if constexpr (N == 64) {
    if constexpr (std::is_same_v<In, BFloat16>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" HALFTONE_WGMMA_TEXT_0
          "}, %32, %33, p, 1, 1, %35, %36;\n}"
          : HALFTONE_WGMMA_32(0)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, Half>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" HALFTONE_WGMMA_TEXT_0
          "}, %32, %33, p, 1, 1, %35, %36;\n}"
          : HALFTONE_WGMMA_32(0)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, float>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" HALFTONE_WGMMA_TEXT_0
          "}, %32, %33, p, 1, 1;\n}"
          : HALFTONE_WGMMA_32(0)
          : "l"(a), "l"(b), "r"(accumulate));
    }
  } else if constexpr (N == 128) {
    if constexpr (std::is_same_v<In, BFloat16>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 "}, %64, %65, p, 1, 1, %67, %68;\n}"
          : HALFTONE_WGMMA_32(0), HALFTONE_WGMMA_32(32)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, Half>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 "}, %64, %65, p, 1, 1, %67, %68;\n}"
          : HALFTONE_WGMMA_32(0), HALFTONE_WGMMA_32(32)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, float>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 "}, %64, %65, p, 1, 1;\n}"
          : HALFTONE_WGMMA_32(0), HALFTONE_WGMMA_32(32)
          : "l"(a), "l"(b), "r"(accumulate));
    }
  } else if constexpr (N == 192) {
    if constexpr (std::is_same_v<In, BFloat16>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 HALFTONE_WGMMA_TEXT_2 "}, %96, %97, p, 1, 1, %99, %100;\n}"
          : HALFTONE_WGMMA_32(0), HALFTONE_WGMMA_32(32), HALFTONE_WGMMA_32(64)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, Half>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 HALFTONE_WGMMA_TEXT_2 "}, %96, %97, p, 1, 1, %99, %100;\n}"
          : HALFTONE_WGMMA_32(0), HALFTONE_WGMMA_32(32), HALFTONE_WGMMA_32(64)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, float>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n192k8.f32.tf32.tf32 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 HALFTONE_WGMMA_TEXT_2 "}, %96, %97, p, 1, 1;\n}"
          : HALFTONE_WGMMA_32(0), HALFTONE_WGMMA_32(32), HALFTONE_WGMMA_32(64)
          : "l"(a), "l"(b), "r"(accumulate));
    }
  } else if constexpr (N == 256) {
    if constexpr (std::is_same_v<In, BFloat16>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 HALFTONE_WGMMA_TEXT_2 HALFTONE_WGMMA_TEXT_3
          "}, %128, %129, p, 1, 1, %131, %132;\n}"
          : HALFTONE_WGMMA_32(0),
            HALFTONE_WGMMA_32(32),
            HALFTONE_WGMMA_32(64),
            HALFTONE_WGMMA_32(96)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, Half>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 HALFTONE_WGMMA_TEXT_2 HALFTONE_WGMMA_TEXT_3
          "}, %128, %129, p, 1, 1, %131, %132;\n}"
          : HALFTONE_WGMMA_32(0),
            HALFTONE_WGMMA_32(32),
            HALFTONE_WGMMA_32(64),
            HALFTONE_WGMMA_32(96)
          : "l"(a), "l"(b), "r"(accumulate), "n"(int{kAmn}), "n"(int{kBmn}));
    } else if constexpr (std::is_same_v<In, float>) {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" HALFTONE_WGMMA_TEXT_0
              HALFTONE_WGMMA_TEXT_1 HALFTONE_WGMMA_TEXT_2 HALFTONE_WGMMA_TEXT_3
          "}, %128, %129, p, 1, 1;\n}"
          : HALFTONE_WGMMA_32(0),
            HALFTONE_WGMMA_32(32),
            HALFTONE_WGMMA_32(64),
            HALFTONE_WGMMA_32(96)
          : "l"(a), "l"(b), "r"(accumulate));
    }
  }
}

#undef HALFTONE_WGMMA_TEXT_0
#undef HALFTONE_WGMMA_TEXT_1
#undef HALFTONE_WGMMA_TEXT_2
#undef HALFTONE_WGMMA_TEXT_3
#undef HALFTONE_WGMMA_4
#undef HALFTONE_WGMMA_16
#undef HALFTONE_WGMMA_32

}  // namespace halftone::sm90
