// What the CPU kernels do with a finished tile of products: the epilogue of GemmEpilogue, row by
// row, and the column sums.
#pragma once

#include <cstdint>

#include "ops/gemm/gemm.h"

namespace halftone::detail {

/// Rows [m0, m0 + rows) x columns [n0, n0 + columns) of matrix `batch` of the result.
struct GemmRegion {
  int64_t batch;
  int64_t m0;
  int64_t n0;
  int64_t rows;
  int64_t columns;
};

/// Applies the epilogue to the products in `values` (row-major, `stride` from row to row; used as
/// working space) and stores D. T is double where D is f64, else float.
template <class T>
void finish_tile(const GemmProblem& problem, const GemmRegion& tile, T* values, int64_t stride);

/// Writes problem.epilogue.column_sums, where given, from the finished D.
void finish_column_sums(const GemmProblem& problem);

extern template void finish_tile(const GemmProblem&, const GemmRegion&, float*, int64_t);
extern template void finish_tile(const GemmProblem&, const GemmRegion&, double*, int64_t);

}  // namespace halftone::detail
