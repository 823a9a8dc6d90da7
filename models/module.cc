#include "models/module.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/dispatch.h"
#include "core/integer.h"
#include "ops/cast/cast.h"

namespace halftone {
namespace {

// In (0, 1]: its logarithm is finite.
double positive_uniform(uint32_t draw) { return (static_cast<double>(draw) + 1.0) * 0x1p-32; }

void fill_normal(const RandomStream& stream, float deviation, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 4) {
    const PhiloxBlock block = stream.block(static_cast<uint64_t>(i / 4));
    double values[4];
    for (int pair = 0; pair < 4; pair += 2) {
      const double radius = std::sqrt(-2.0 * std::log(positive_uniform(block.word[pair])));
      const double angle =
          2.0 * std::numbers::pi * static_cast<double>(block.word[pair + 1]) * 0x1p-32;
      values[pair] = radius * std::cos(angle);
      values[pair + 1] = radius * std::sin(angle);
    }
    for (int64_t j = 0; j < std::min<int64_t>(4, n - i); ++j) {
      out[i + j] = static_cast<float>(values[j] * double{deviation});
    }
  }
}

Tensor view_of(const Tensor& buffer, const Parameter& p) {
  return buffer.view(p.padded, contiguous_strides(p.padded), p.offset);
}

}  // namespace

void fill_initial(const Init& init, uint64_t seed, std::string_view path, int64_t n, float* out) {
  const RandomStream stream{philox_key(seed, concat("init/", path))};
  switch (init.kind) {
    case Init::Kind::zeros:
      std::fill_n(out, n, 0.0f);
      return;
    case Init::Kind::ones:
      std::fill_n(out, n, 1.0f);
      return;
    case Init::Kind::uniform:
      for (int64_t i = 0; i < n; ++i) {
        out[i] = (2.0f * uniform(stream.draw(static_cast<uint64_t>(i))) - 1.0f) * init.scale;
      }
      return;
    case Init::Kind::normal:
      fill_normal(stream, init.scale, n, out);
      return;
  }
  throw std::logic_error("fill_initial: not an Init::Kind");
}

Parameter& ParameterSet::declare(std::string path,
                                 const Shape& shape,
                                 const Init& init,
                                 int64_t padded_rows) {
  HALFTONE_CHECK(!buffers_.weights.defined(),
                 "parameters: '",
                 path,
                 "' is declared after the buffers were allocated");
  HALFTONE_CHECK(std::none_of(parameters_.begin(),
                              parameters_.end(),
                              [&](const Parameter& p) { return p.path == path; }),
                 "parameters: '",
                 path,
                 "' is declared twice");
  Parameter& p = parameters_.emplace_back();
  p.path = std::move(path);
  p.shape = shape;
  p.padded = padded_rows == 0 ? shape : Shape{padded_rows, shape[1]};
  p.init = init;
  return p;
}

void ParameterSet::allocate(const Recipe& recipe, uint64_t seed, Device device) {
  HALFTONE_CHECK(!buffers_.weights.defined(), "parameters: allocated twice");
  int64_t size = 0;
  for (Parameter& p : parameters_) {
    p.offset = size;
    size += round_up(p.padded.numel(), kParameterAlignment);
  }
  const bool is_narrow = recipe.act != DType::f32;
  const bool has_copies = is_narrow && recipe.master;
  buffers_.gradients = Tensor::zeros({size}, DType::f32, device, MemoryCategory::gradients);
  buffers_.weights = Tensor::zeros({size},
                                   is_narrow && !recipe.master ? recipe.act : DType::f32,
                                   device,
                                   has_copies ? MemoryCategory::masters : MemoryCategory::weights);
  if (has_copies) {
    buffers_.copies = Tensor::zeros({size}, recipe.act, device, MemoryCategory::weights);
  }
  buffers_.rounding = recipe.update;

  std::vector<float> values(static_cast<size_t>(size));
  std::vector<uint8_t> decays(static_cast<size_t>(size / kParameterAlignment));
  for (const Parameter& p : parameters_) {
    fill_initial(p.init, seed, p.path, p.shape.numel(), values.data() + p.offset);
    std::fill_n(decays.begin() + p.offset / kParameterAlignment,
                round_up(p.shape.numel(), kParameterAlignment) / kParameterAlignment,
                static_cast<uint8_t>(p.decays() ? 1 : 0));
  }
  const int64_t num_blocks = size / kParameterAlignment;
  buffers_.decays =
      to_device(Tensor::from<uint8_t>(decays, {num_blocks}, MemoryCategory::moments), device);
  const Tensor initial = Tensor::empty({size}, buffers_.weights.dtype());
  dispatch_floating(initial.dtype(), "parameters", [&]<class T>() {
    std::transform(values.begin(), values.end(), initial.data<T>(), [](float value) {
      return narrow<T>(value);
    });
  });
  copy(initial, buffers_.weights);
  refresh_copies();

  for (Parameter& p : parameters_) {
    p.source = view_of(buffers_.weights, p);
    p.weight = has_copies ? view_of(buffers_.copies, p) : p.source;
    p.gradient = view_of(buffers_.gradients, p);
    p.weight.bind_grad(p.gradient);
  }
}

int64_t ParameterSet::num_elements() const {
  int64_t n = 0;
  for (const Parameter& p : parameters_) {
    n += p.shape.numel();
  }
  return n;
}

const Parameter& ParameterSet::at_offset(int64_t offset) const {
  const auto after = std::upper_bound(
      parameters_.begin(), parameters_.end(), offset, [](int64_t value, const Parameter& p) {
        return value < p.offset;
      });
  HALFTONE_CHECK(after != parameters_.begin(), "parameters: no parameter at offset ", offset);
  return *std::prev(after);
}

void ParameterSet::refresh_copies() {
  if (!buffers_.copies.defined()) {
    return;
  }
  convert_into(buffers_.weights, buffers_.copies);
}

void ParameterSet::begin_gradients() {
  for (Parameter& p : parameters_) {
    p.weight.reset_grad();
  }
}

void ParameterSet::finish_gradients() {
  for (Parameter& p : parameters_) {
    if (!p.weight.grad_written()) {
      fill_zero(p.gradient);
    }
  }
}

}  // namespace halftone
