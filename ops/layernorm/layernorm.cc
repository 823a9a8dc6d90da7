#include "ops/layernorm/layernorm.h"

#include "ops/layernorm/norm.h"

namespace halftone {

Tensor layernorm(const Tensor& x,
                 const Tensor& gamma,
                 const Tensor& beta,
                 float eps,
                 std::optional<DType> dtype) {
  const Norm norm{.op = "layernorm",
                  .centered = true,
                  .eps = eps,
                  .gamma = gamma,
                  .beta = beta,
                  .dtype = dtype.value_or(x.dtype())};
  check_norm(norm, x);
  return normalize(norm, x);
}

}  // namespace halftone
