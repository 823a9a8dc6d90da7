#include "ops/rmsnorm/rmsnorm.h"

#include "ops/layernorm/norm.h"

namespace halftone {

Tensor rmsnorm(const Tensor& x, const Tensor& gamma, float eps, std::optional<DType> dtype) {
  const Norm norm{.op = "rmsnorm",
                  .centered = false,
                  .eps = eps,
                  .gamma = gamma,
                  .beta = Tensor(),
                  .dtype = dtype.value_or(x.dtype())};
  check_norm(norm, x);
  return normalize(norm, x);
}

}  // namespace halftone
