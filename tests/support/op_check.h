// An op in a narrower dtype against itself in double, and against itself with other numbers of
// threads.
#pragma once

#include <gtest/gtest.h>

#include "core/dispatch.h"
#include "tests/support/bits.h"
#include "tests/support/close.h"
#include "tests/support/gradcheck.h"

namespace halftone::testing {

/// f64 values rounded to `dtype`.
Tensor as_dtype(const Tensor& x, DType dtype);

/// What an op gave, widened: its output, then its inputs' gradients.
using OpResult = std::vector<std::vector<double>>;

/// Runs f and its backward pass on the values of `inputs` (f64) in `dtype`. The output's gradient
/// is `dy` (f64) rounded to the output's dtype. Gradients are those of activations, of the same
/// dtype; or, with `parameters`, of leaves, in FP32. On the device given, whatever that of the
/// inputs.
OpResult run_op(const TensorFunction& f,
                const Tensors& inputs,
                const Tensor& dy,
                DType dtype,
                bool parameters = false,
                Device device = {});

/// How far an op in f32 or 16 bits may be from double, given the same rounded inputs: `computed`
/// roundings in FP32 and `stored` roundings of the storage type, of values up to `magnitude` (0:
/// the result's largest); beside the rounding of the result itself, relative to each element.
struct OpTolerance {
  double computed = 8;
  double stored = 0;
  double magnitude = 0;
};

/// Checks output and gradients of f in f32, bf16 and f16 against f64 on the same rounded inputs,
/// with gradients of activations and of parameters, and that 1, 2 and 5 threads give the same bits.
void expect_like_double(const TensorFunction& f,
                        const Tensors& inputs,
                        const OpTolerance& output,
                        const OpTolerance& gradient);

/// NaN has one spelling: which bits a NaN has is not promised.
std::vector<double> with_one_nan(std::vector<double> values);

/// Checks that a GPU gives the CPU's output and gradients, bit for bit (NaN for NaN), in f32, bf16
/// and f16, with gradients of activations and of parameters. The GPU's memory starts as NaN, and
/// must be so still behind the results.
void expect_same_on_gpu(const TensorFunction& f, const Tensors& inputs);

}  // namespace halftone::testing
