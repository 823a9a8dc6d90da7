// The parameters of a model. Modules declare theirs by module path while the model is built;
// allocate() then lays all of them out in flat buffers with equal offsets, each parameter at a
// multiple of 64 elements, gaps zero, and fills them. What the forward pass reads is a view of the
// FP32 weights, or of their 16-bit copies where the recipe stores activations in 16 bits; gradients
// are views of one FP32 buffer, which backward passes write straight into. Initial values depend on
// the seed and the path alone, never on the recipe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "core/recipe.h"
#include "core/tensor.h"
#include "ops/weight_update/weight_update.h"

namespace halftone {

/// How a parameter starts.
struct Init {
  enum class Kind : uint8_t { zeros, ones, uniform, normal };
  Kind kind = Kind::zeros;
  float scale = 0.0f;  // uniform: in [-scale, scale); normal: the standard deviation

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 1.0f}; }
  static Init uniform(float bound) { return {Kind::uniform, bound}; }
  static Init normal(float deviation) { return {Kind::normal, deviation}; }
};

struct Parameter {
  std::string path;  // "layers.0.weight"
  Shape shape;
  Shape padded;  // in memory: `shape`, or a matrix with rows of zeros behind it that stay zero
  Init init;
  int64_t offset = 0;  // in the flat buffers
  Tensor weight;       // what the forward pass reads: a leaf whose gradient is `gradient`
  Tensor source;       // the FP32 weights behind it; `weight` itself where there are no others
  Tensor gradient;     // f32

  /// A tensor with `padded` elements, without its padding.
  Tensor without_padding(const Tensor& t) const {
    return t.view(shape, contiguous_strides(shape), 0);
  }
  /// Weight decay is for matrices: not for biases and norms.
  bool decays() const { return shape.rank() >= 2; }
};

class ParameterSet {
 public:
  ParameterSet() = default;
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;

  /// Declares a parameter, whose address stays; its tensors are there after allocate(). Throws
  /// std::invalid_argument if the path is taken.
  /// A matrix may have `padded_rows` in memory, more than its shape says (0: as many).
  Parameter& declare(std::string path,
                     const Shape& shape,
                     const Init& init,
                     int64_t padded_rows = 0);

  /// Makes the buffers and initialises the weights. Called once, after the last declaration.
  void allocate(const Recipe& recipe, uint64_t seed, Device device);

  const std::deque<Parameter>& all() const { return parameters_; }
  const ParameterBuffers& buffers() const { return buffers_; }
  /// Elements of all parameters, without gaps.
  int64_t num_elements() const;
  /// The parameter that owns an element of the flat buffers; of a gap, the one before it.
  const Parameter& at_offset(int64_t offset) const;

  /// The 16-bit copies from the FP32 weights, after these were loaded.
  void refresh_copies();
  /// Before the first micro-batch of a step: backward passes overwrite the gradients.
  void begin_gradients();
  /// After the last: gradients that no backward pass wrote are zero.
  void finish_gradients();

 private:
  std::deque<Parameter> parameters_;
  ParameterBuffers buffers_;
};

/// n values of an initialisation, for element 0 to n - 1 of the parameter at `path`. Normal values
/// are Box-Muller's, in double, rounded once.
void fill_initial(const Init& init, uint64_t seed, std::string_view path, int64_t n, float* out);

}  // namespace halftone
