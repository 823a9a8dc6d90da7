// Records what the Tensor Core makes of single instructions, and compares it with
// ops/gemm/tensor_core.h.
//
//   tensor_core_vectors OUT_DIR RECORDED CHECKED [SEED]
//
// For each form (wgmma m64n8 and mma.sync m16n8) it runs CHECKED random output elements, writes the
// first RECORDED of them to OUT_DIR/<form>.bin (TensorCoreSample, 72 bytes each) and prints how
// many results equal the model's. Exit status 1 if any differs. An instruction carries 8 elements
// with operands of their own: row i of A and column i of B, the rest zero. Needs sm_90a.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/tensor_core_samples.h"

namespace halftone::testing {
namespace {

constexpr int kElements = 8;  // per instruction
constexpr int kRowBytes = 32;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "tensor_core_vectors: %s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
  }
}

/// Byte offset of (row, byte) of a K-major operand without swizzle: 8 rows of 16 bytes make a core
/// matrix of 128 bytes, two of which lie side by side along K.
__device__ int core_matrix_offset(int row, int byte) {
  return (row / 8 * 2 + byte / 16) * 128 + row % 8 * 16 + byte % 16;
}

__device__ uint64_t descriptor(const void* shared) {
  const uint64_t address = __cvta_generic_to_shared(shared);
  return (address & 0x3FFFF) >> 4 | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
}

#define WGMMA(SHAPE_AND_TYPES, TAIL)                            \
  asm volatile("wgmma.mma_async.sync.aligned." SHAPE_AND_TYPES  \
               " {%0, %1, %2, %3}, %4, %5, 1, 1, 1" TAIL ";"    \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
               : "l"(a), "l"(b))

template <FormId kForm>
__device__ void wgmma(float* d, uint32_t* half_d, uint64_t a, uint64_t b) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  if constexpr (kForm == kWgmmaBf16) {
    WGMMA("m64n8k16.f32.bf16.bf16", ", 0, 0");
  } else if constexpr (kForm == kWgmmaFp16) {
    WGMMA("m64n8k16.f32.f16.f16", ", 0, 0");
  } else if constexpr (kForm == kWgmmaTf32) {
    WGMMA("m64n8k8.f32.tf32.tf32", "");
  } else if constexpr (kForm == kWgmmaE4M3) {
    WGMMA("m64n8k32.f32.e4m3.e4m3", "");
  } else if constexpr (kForm == kWgmmaE5M2) {
    WGMMA("m64n8k32.f32.e5m2.e5m2", "");
  } else if constexpr (kForm == kWgmmaE4M3E5M2) {
    WGMMA("m64n8k32.f32.e4m3.e5m2", "");
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, %2, %3, 1, 1, 1, 0, 0;"
        : "+r"(half_d[0]), "+r"(half_d[1])
        : "l"(a), "l"(b));
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile(
      "wgmma.wait_group.sync.aligned 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+r"(half_d[0]), "+r"(half_d[1])::"memory");
}

#define MMA(SHAPE_AND_TYPES, A, B)                               \
  asm volatile("mma.sync.aligned." SHAPE_AND_TYPES               \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
               "{%0, %1, %2, %3};"                               \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <FormId kForm>
__device__ void mma(float* d, uint32_t* half_d, const uint32_t* a, const uint32_t* b) {
  if constexpr (kForm == kMmaBf16) {
    MMA("m16n8k16.row.col.f32.bf16.bf16.f32", a, b);
  } else if constexpr (kForm == kMmaFp16) {
    MMA("m16n8k16.row.col.f32.f16.f16.f32", a, b);
  } else if constexpr (kForm == kMmaTf32) {
    MMA("m16n8k8.row.col.f32.tf32.tf32.f32", a, b);
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
        "{%0, %1};"
        : "+r"(half_d[0]), "+r"(half_d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

/// One block, one instruction: wgmma with 128 threads, mma.sync with 32. Thread and register of an
/// accumulator element are those of m16n8 in both: row 16 warp + lane / 4 (+ 8 for the second
/// pair), column lane % 4 * 2.
template <FormId kForm>
__global__ void instruction_kernel(TensorCoreSample* samples) {
  constexpr bool kWgmma = kForm <= kWgmmaFp16Acc16;
  constexpr bool kHalf = kForm == kWgmmaFp16Acc16 || kForm == kMmaFp16Acc16;
  constexpr int kRows = kWgmma ? 64 : 16;
  __shared__ alignas(1024) uint8_t a_tile[kRows * kRowBytes];
  __shared__ alignas(1024) uint8_t b_tile[kElements * kRowBytes];
  __shared__ uint32_t c_tile[kRows][kElements];
  samples += blockIdx.x * kElements;
  const auto row_of = [](int element) { return element * (kRows / 8) + element % (kRows / 8); };

  for (int i = threadIdx.x; i < kRows * kRowBytes; i += blockDim.x) {
    a_tile[i] = 0;
  }
  for (int i = threadIdx.x; i < kRows * kElements; i += blockDim.x) {
    c_tile[i / kElements][i % kElements] = 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kElements * kRowBytes; i += blockDim.x) {
    const int element = i / kRowBytes;
    const int byte = i % kRowBytes;
    const int row = row_of(element);
    if constexpr (kWgmma) {
      a_tile[core_matrix_offset(row, byte)] = samples[element].a[byte];
      b_tile[core_matrix_offset(element, byte)] = samples[element].b[byte];
    } else {
      a_tile[row * kRowBytes + byte] = samples[element].a[byte];
      b_tile[element * kRowBytes + byte] = samples[element].b[byte];
    }
    if (byte == 0) {
      c_tile[row][element] = samples[element].c;
    }
  }
  if constexpr (kWgmma) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  const int column = lane % 4 * 2;
  float d[4];
  uint32_t half_d[2];
  for (int i = 0; i < 2; ++i) {
    const uint32_t* c = &c_tile[row + 8 * i][column];
    d[2 * i] = __uint_as_float(c[0]);
    d[2 * i + 1] = __uint_as_float(c[1]);
    half_d[i] = c[0] | c[1] << 16;
  }
  if constexpr (kWgmma) {
    wgmma<kForm>(d, half_d, descriptor(a_tile), descriptor(b_tile));
  } else {
    const auto word = [](const uint8_t* tile, int r, int byte) {
      return *reinterpret_cast<const uint32_t*>(tile + r * kRowBytes + byte);
    };
    const int byte = lane % 4 * 4;
    const uint32_t a[4] = {word(a_tile, row, byte),
                           word(a_tile, row + 8, byte),
                           word(a_tile, row, byte + 16),
                           word(a_tile, row + 8, byte + 16)};
    const uint32_t b[2] = {word(b_tile, lane / 4, byte), word(b_tile, lane / 4, byte + 16)};
    mma<kForm>(d, half_d, a, b);
  }
  for (int i = 0; i < 4; ++i) {
    const int r = row + i / 2 * 8;
    const int c = column + i % 2;
    if (r == row_of(c)) {
      samples[c].d = kHalf ? half_d[i / 2] >> (i % 2 * 16) & 0xFFFF : __float_as_uint(d[i]);
    }
  }
}

template <FormId kForm>
bool record(const std::string& folder, size_t recorded, size_t checked, uint32_t seed) {
  const TensorCoreForm& form = kTensorCoreForms[kForm];
  std::vector<TensorCoreSample> samples = random_samples(form, checked, seed + kForm);
  TensorCoreSample* on_device = nullptr;
  const size_t bytes = samples.size() * sizeof(TensorCoreSample);
  check(cudaMalloc(&on_device, bytes), "cudaMalloc");
  check(cudaMemcpy(on_device, samples.data(), bytes, cudaMemcpyHostToDevice), "copy to the device");
  const unsigned blocks = static_cast<unsigned>(samples.size() / kElements);
  instruction_kernel<kForm><<<blocks, kForm <= kWgmmaFp16Acc16 ? 128 : 32>>>(on_device);
  check(cudaGetLastError(), form.name);
  check(cudaMemcpy(samples.data(), on_device, bytes, cudaMemcpyDeviceToHost), form.name);
  check(cudaFree(on_device), "cudaFree");

  std::ofstream file(folder + "/" + form.name + ".bin", std::ios::binary);
  file.write(
      reinterpret_cast<const char*>(samples.data()),
      static_cast<std::streamsize>(std::min(recorded, samples.size()) * sizeof(TensorCoreSample)));
  size_t equal = 0;
  for (const TensorCoreSample& sample : samples) {
    equal += model_result(form, sample) == sample.d;
  }
  std::printf("%-18s %zu of %zu results equal the model's\n", form.name, equal, samples.size());
  return file.good() && equal == samples.size();
}

template <int... kForms>
bool record_all(std::integer_sequence<int, kForms...>,
                const std::string& folder,
                size_t recorded,
                size_t checked,
                uint32_t seed) {
  return (record<static_cast<FormId>(kForms)>(folder, recorded, checked, seed) & ...);
}

}  // namespace
}  // namespace halftone::testing

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: tensor_core_vectors OUT_DIR RECORDED CHECKED [SEED]\n");
    return 2;
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::fprintf(stderr, "tensor_core_vectors: needs a GPU of compute capability 9.0\n");
    return 1;
  }
  const size_t recorded = std::strtoull(argv[2], nullptr, 10);
  const size_t checked = std::max<size_t>(recorded, std::strtoull(argv[3], nullptr, 10)) / 8 * 8;
  const uint32_t seed = argc > 4 ? static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10)) : 1;
  using namespace halftone::testing;
  constexpr int kForms = sizeof(kTensorCoreForms) / sizeof(kTensorCoreForms[0]);
  std::printf("%s, seed %u\n", properties.name, seed);
  return record_all(std::make_integer_sequence<int, kForms>{}, argv[1], recorded, checked, seed)
             ? 0
             : 1;
}
