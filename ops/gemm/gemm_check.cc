// What makes a GemmProblem well formed, whatever the device and kernel. Every message names the
// operand, what was expected and what was found.
#include "core/check.h"
#include "ops/gemm/gemm_cpu.h"
#include "ops/gemm/tensor_core.h"

namespace halftone::detail {
namespace {

void check_scales(const GemmScales& scales, std::string_view name) {
  if (scales.data == nullptr) {
    return;
  }
  HALFTONE_CHECK(scales.block_mn > 0 && scales.block_k > 0,
                 "gemm: scales of ",
                 name,
                 " have blocks of ",
                 scales.block_mn,
                 " by ",
                 scales.block_k,
                 ", expected positive numbers");
  HALFTONE_CHECK(scales.block_k == GemmScales::kWhole || scales.block_k % 16 == 0,
                 "gemm: scales of ",
                 name,
                 " change every ",
                 scales.block_k,
                 " of K, expected a multiple of 16");
}

/// `rows` x `columns` as stored.
void check_operand(
    const GemmOperand& operand, std::string_view name, int64_t rows, int64_t columns, bool is_f64) {
  if (rows == 0 || columns == 0) {
    return;
  }
  HALFTONE_CHECK(operand.data != nullptr, "gemm: ", name, " has no data");
  HALFTONE_CHECK(rows == 1 || operand.stride >= columns,
                 "gemm: ",
                 name,
                 operand.transposed ? " (transposed)" : "",
                 " is stored as [",
                 rows,
                 ", ",
                 columns,
                 "], so its row stride must be at least ",
                 columns,
                 "; it is ",
                 operand.stride);
  HALFTONE_CHECK(!is_f64 || (operand.format == kFp32 && operand.scales.data == nullptr),
                 "gemm: D is f64, so ",
                 name,
                 " must be f64 without format or scales; its format is ",
                 to_string(operand.format));
  check_scales(operand.scales, name);
}

/// Where groups of matrices lie.
void check_groups(std::string_view name, int64_t batch_stride, int64_t group_stride) {
  HALFTONE_CHECK(batch_stride == 0 ? group_stride == 0 : group_stride % batch_stride == 0,
                 "gemm: groups of ",
                 name,
                 " lie ",
                 group_stride,
                 " elements apart, expected a multiple of the batch stride, ",
                 batch_stride);
}

void check_output(const GemmProblem& p) {
  HALFTONE_CHECK(is_floating(p.d_dtype), "gemm: D has dtype ", p.d_dtype, ", expected a float");
  if (p.M == 0 || p.N == 0 || p.batch == 0) {
    return;
  }
  HALFTONE_CHECK(p.d != nullptr, "gemm: D has no data");
  HALFTONE_CHECK(p.M == 1 || p.d_stride >= p.N,
                 "gemm: D is [",
                 p.M,
                 ", ",
                 p.N,
                 "], so its row stride must be at least ",
                 p.N,
                 "; it is ",
                 p.d_stride);
  HALFTONE_CHECK(p.batch == 1 || p.d_batch_stride != 0,
                 "gemm: the ",
                 p.batch,
                 " matrices of the batch would all be written to one place: d_batch_stride is 0");
  HALFTONE_CHECK(!p.accumulate || p.d_dtype == DType::f32 || p.d_dtype == DType::f64,
                 "gemm: accumulating needs D in f32, it is ",
                 p.d_dtype);
}

void check_epilogue(const GemmProblem& p) {
  const GemmEpilogue& e = p.epilogue;
  HALFTONE_CHECK(e.bias == nullptr || is_floating(e.bias_dtype),
                 "gemm: the bias has dtype ",
                 e.bias_dtype,
                 ", expected a float");
  HALFTONE_CHECK(e.gradient_of == nullptr || e.activation != Activation::none,
                 "gemm: gradient_of is given, so activation must say whose derivative is meant");
  HALFTONE_CHECK(e.gradient_of == nullptr || e.pre_activation == nullptr,
                 "gemm: gradient_of and pre_activation exclude each other");
  HALFTONE_CHECK(e.column_sums == nullptr || p.batch == 1,
                 "gemm: column sums need batch = 1, it is ",
                 p.batch);
}

void check_accumulator(const GemmProblem& p) {
  if (p.acc == Accumulator::fp32) {
    return;
  }
  HALFTONE_CHECK(p.d_dtype != DType::f64,
                 "gemm: acc=",
                 name_of(p.acc),
                 " is not defined for f64 operands; use acc=fp32");
  tensor_core_unit(p.acc, p.a.format, p.b.format);
}

}  // namespace

void check_gemm(const GemmProblem& p) {
  HALFTONE_CHECK(p.M >= 0 && p.N >= 0 && p.K >= 0 && p.batch >= 0,
                 "gemm: M, N, K and batch must not be negative; they are ",
                 p.M,
                 ", ",
                 p.N,
                 ", ",
                 p.K,
                 " and ",
                 p.batch);
  HALFTONE_CHECK(p.promote >= 0 && p.promote % 16 == 0,
                 "gemm: promote is ",
                 p.promote,
                 ", expected 0 or a multiple of 16");
  HALFTONE_CHECK(p.group == 0 || (p.group > 0 && p.batch % p.group == 0),
                 "gemm: groups of ",
                 p.group,
                 " matrices do not divide a batch of ",
                 p.batch);
  if (p.group != 0 && p.M > 0 && p.N > 0 && p.batch > 0) {
    check_groups("A", p.a.batch_stride, p.a.group_stride);
    check_groups("B", p.b.batch_stride, p.b.group_stride);
    check_groups("D", p.d_batch_stride, p.d_group_stride);
    HALFTONE_CHECK(p.batch == p.group || p.d_group_stride != 0,
                   "gemm: all groups would be written to one place: d_group_stride is 0");
  }
  const bool is_f64 = p.d_dtype == DType::f64;
  check_output(p);
  if (p.M > 0 && p.N > 0 && p.batch > 0) {
    check_operand(p.a, "A", p.a.transposed ? p.K : p.M, p.a.transposed ? p.M : p.K, is_f64);
    check_operand(p.b, "B", p.b.transposed ? p.N : p.K, p.b.transposed ? p.K : p.N, is_f64);
  }
  check_epilogue(p);
  check_accumulator(p);
}

}  // namespace halftone::detail
