#include "tests/support/gemm_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "core/formats.h"
#include "core/math.h"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/tensor_core.h"

namespace halftone::testing {
namespace {

DType storage_of(const Format& format) {
  return format == kBf16      ? DType::bf16
         : format == kFp16    ? DType::f16
         : format.bits() <= 8 ? DType::u8
                              : DType::f32;
}

void fill(StoredMatrix& matrix, const Format* format, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < matrix.batch; ++i) {
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t c = 0; c < matrix.columns; ++c) {
        matrix.set(i, r, c, normal(rng), format);
      }
    }
  }
}

std::vector<float> make_scales(GemmScales& scales,
                               int64_t mn,
                               int64_t K,
                               int64_t block_mn,
                               int64_t block_k,
                               std::mt19937& rng) {
  const auto blocks = [](int64_t size, int64_t block) {
    return block == GemmScales::kWhole ? 1 : (size + block - 1) / block;
  };
  const int64_t across = std::max<int64_t>(blocks(K, block_k), 1);
  const int64_t down = std::max<int64_t>(blocks(mn, block_mn), 1);
  std::vector<float> values(down * across);
  std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
  std::generate(values.begin(), values.end(), [&] { return uniform(rng); });
  scales.data = values.data();
  scales.block_mn = block_mn;
  scales.block_k = block_k;
  scales.stride_mn = across;
  scales.stride_k = 1;
  return values;
}

}  // namespace

StoredMatrix::StoredMatrix(
    DType dtype, int64_t rows, int64_t columns, int64_t gap, int64_t batch, int64_t group)
    : dtype(dtype),
      rows(rows),
      columns(columns),
      batch(batch),
      group(group),
      stride(columns + gap),
      batch_stride(rows * stride),
      group_stride(group == 0 ? 0 : (group + 1) * batch_stride),
      bytes_(std::make_unique<Guarded<uint8_t>>((group == 0 ? batch : batch / group * (group + 1)) *
                                                batch_stride * size_of(dtype))) {}

StoredMatrix StoredMatrix::copy() const {
  StoredMatrix other(dtype, rows, columns, stride - columns, batch, group);
  std::copy_n(bytes_->data(), bytes_->size(), other.bytes_->data());
  return other;
}

double StoredMatrix::get(int64_t i, int64_t row, int64_t column, const Format* format) const {
  const auto read = [&]<class S>(S value) {
    std::memcpy(&value, bytes_->data() + index(i, row, column) * sizeof(S), sizeof(S));
    return value;
  };
  switch (dtype) {
    case DType::f64:
      return read(double{});
    case DType::f32: {
      const float value = read(float{});
      return format != nullptr && *format == kTf32 ? round_to(kTf32, value) : value;
    }
    case DType::bf16:
      return decode(kBf16, read(uint16_t{}));
    case DType::f16:
      return decode(kFp16, read(uint16_t{}));
    default:
      return format == nullptr ? std::nan("") : decode(*format, read(uint8_t{}));
  }
}

void StoredMatrix::set(int64_t i, int64_t row, int64_t column, double value, const Format* format) {
  const auto write = [&]<class S>(S stored) {
    std::memcpy(bytes_->data() + index(i, row, column) * sizeof(S), &stored, sizeof(S));
  };
  const float single = static_cast<float>(value);
  switch (dtype) {
    case DType::f64:
      return write(value);
    case DType::f32:  // TF32 stays unrounded in storage
      return write(format == nullptr || *format == kTf32 ? single
                                                         : decode(*format, encode(*format, value)));
    case DType::bf16:
      return write(static_cast<uint16_t>(encode(kBf16, value)));
    case DType::f16:
      return write(static_cast<uint16_t>(encode(kFp16, value)));
    default:
      return write(static_cast<uint8_t>(encode(*format, value)));
  }
}

bool StoredMatrix::gaps_intact() const {
  const size_t element = size_of(dtype);
  for (int64_t r = 0; r < batch * rows; ++r) {
    const uint8_t* gap = bytes_->data() + index(r / rows, r % rows, columns) * element;
    if (std::any_of(gap, gap + (stride - columns) * element, [](uint8_t b) { return b != 0xFF; })) {
      return false;
    }
  }
  return true;
}

GemmCase::GemmCase(const GemmSpec& s) : spec(s) {
  std::mt19937 rng(s.seed);
  const bool f64 = s.d == DType::f64;
  const auto operand = [&](const Format& format, int64_t rows, int64_t columns, int64_t batch) {
    StoredMatrix matrix(f64 ? DType::f64 : storage_of(format),
                        rows,
                        columns,
                        s.row_gap,
                        batch,
                        batch == 1 ? 0 : s.group);
    fill(matrix, &format, rng);
    return matrix;
  };
  a = operand(s.a, s.a_transposed ? s.K : s.M, s.a_transposed ? s.M : s.K, s.batch);
  const int64_t b_batch = s.broadcast_b ? 1 : s.batch;
  b = operand(s.b, s.b_transposed ? s.N : s.K, s.b_transposed ? s.K : s.N, b_batch);
  const auto output = [&](bool filled) {
    StoredMatrix matrix(s.d, s.M, s.N, s.row_gap, s.batch, s.group);
    if (filled) {
      fill(matrix, nullptr, rng);
    }
    return matrix;
  };
  d = output(s.accumulate);
  before_ = d.copy();

  GemmProblem& p = problem;
  p.M = s.M;
  p.N = s.N;
  p.K = s.K;
  p.batch = s.batch;
  p.group = s.group;
  p.a = {.data = a.data(),
         .format = s.a,
         .transposed = s.a_transposed,
         .stride = a.stride,
         .batch_stride = a.batch_stride,
         .group_stride = a.group_stride};
  p.b = {.data = b.data(),
         .format = s.b,
         .transposed = s.b_transposed,
         .stride = b.stride,
         .batch_stride = s.broadcast_b ? 0 : b.batch_stride,
         .group_stride = b.group_stride};
  if (s.a_block_mn > 0) {
    a_scales = make_scales(p.a.scales, s.M, s.K, s.a_block_mn, s.a_block_k, rng);
    p.a.scales.data = a_scales.data();
  }
  if (s.b_block_mn > 0) {
    b_scales = make_scales(p.b.scales, s.N, s.K, s.b_block_mn, s.b_block_k, rng);
    p.b.scales.data = b_scales.data();
  }
  p.d = d.data();
  p.d_dtype = s.d;
  p.d_stride = d.stride;
  p.d_batch_stride = d.batch_stride;
  p.d_group_stride = d.group_stride;
  p.accumulate = s.accumulate;
  p.acc = s.acc;
  p.promote = s.promote;
  p.epilogue.activation = s.activation;
  if (s.bias) {
    bias = StoredMatrix(s.bias_dtype, 1, s.N, 0, 1);
    fill(bias, nullptr, rng);
    p.epilogue.bias = bias.data();
    p.epilogue.bias_dtype = s.bias_dtype;
  }
  if (s.pre_activation) {
    pre = output(false);
    p.epilogue.pre_activation = pre.data();
  }
  if (s.gradient) {
    gradient = output(true);
    p.epilogue.gradient_of = gradient.data();
  }
  if (s.residual) {
    residual = output(true);
    p.epilogue.residual = residual.data();
  }
  if (s.column_sums) {
    column_sums.assign(s.N, std::nanf(""));
    p.epilogue.column_sums = column_sums.data();
  }
}

double GemmCase::a_at(int64_t batch, int64_t m, int64_t k) const {
  return spec.a_transposed ? a.get(batch, k, m, &spec.a) : a.get(batch, m, k, &spec.a);
}

double GemmCase::b_at(int64_t batch, int64_t k, int64_t n) const {
  const int64_t i = spec.broadcast_b ? 0 : batch;
  return spec.b_transposed ? b.get(i, n, k, &spec.b) : b.get(i, k, n, &spec.b);
}

float GemmCase::scale(int64_t m, int64_t n, int64_t k) const {
  const auto at = [&](const GemmScales& s, int64_t i) {
    return s.data == nullptr ? 1.0f
                             : s.data[i / s.block_mn * s.stride_mn + k / s.block_k * s.stride_k];
  };
  return at(problem.a.scales, m) * at(problem.b.scales, n);
}

GemmCase::Product GemmCase::product(int64_t batch, int64_t m, int64_t n) const {
  Product sum;
  for (int64_t k = 0; k < spec.K; ++k) {
    const double term = a_at(batch, m, k) * b_at(batch, k, n) * scale(m, n, k);
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

float GemmCase::replay_eigen(int64_t batch, int64_t m, int64_t n) const {
  constexpr int64_t kDepth = 256;
  const bool scaled = problem.a.scales.data != nullptr || problem.b.scales.data != nullptr;
  const KOrder order{.instruction_k = 1, .split_k = spec.K, .promote = spec.promote};
  const int64_t step = spec.promote > 0 ? std::min(spec.promote, kDepth) : kDepth;
  float total = 0;
  float product = 0;
  for (int64_t k = 0; k < spec.K;) {
    const int64_t end = scaled ? interval_end(problem, order, k) : spec.K;
    for (int64_t begin = k; begin < end; begin += step) {
      float chunk = 0;
      for (int64_t i = begin; i < std::min(begin + step, end); ++i) {
        chunk = std::fma(
            static_cast<float>(a_at(batch, m, i)), static_cast<float>(b_at(batch, i, n)), chunk);
      }
      product += chunk;
    }
    if (scaled) {
      total = std::fma(product, scale(m, n, k), total);
      product = 0;
    }
    k = end;
  }
  return scaled ? total : product;
}

float GemmCase::replay_emulated(int64_t batch, int64_t m, int64_t n) const {
  const TensorCoreUnit unit = tensor_core_unit(spec.acc, spec.a, spec.b);
  const KOrder order = k_order(problem);
  const bool promoted =
      order.promote > 0 || problem.a.scales.data != nullptr || problem.b.scales.data != nullptr;
  float total = 0;
  for (int64_t split = 0; split < spec.K; split += order.split_k) {
    float sum = 0;
    for (int64_t k = split; k < std::min(split + order.split_k, spec.K);) {
      const int64_t end = interval_end(problem, order, k);
      float chain = 0;
      for (int64_t begin = k; begin < end; begin += unit.products) {
        std::array<float, 32> x{}, y{};
        for (int64_t i = begin; i < std::min(begin + unit.products, end); ++i) {
          x[i - begin] = static_cast<float>(a_at(batch, m, i));
          y[i - begin] = static_cast<float>(b_at(batch, i, n));
        }
        chain = tensor_core_step(unit, x.data(), y.data(), chain);
      }
      sum = promoted ? std::fma(chain, scale(m, n, k), sum) : chain;
      k = end;
    }
    total = split == 0 ? sum : total + sum;
  }
  return total;
}

namespace {

// The double epilogue is written from the definitions, the float one from core/math.h: the first
// checks values, the second bits.
double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
float gelu_of(float x) { return math::gelu(x); }
float gelu_slope(float x) { return math::gelu_grad(x); }

}  // namespace

template <class T>
T GemmCase::finish(T v, int64_t batch, int64_t m, int64_t n, T* pre_value) const {
  const auto at = [&](const StoredMatrix& matrix) {
    return static_cast<T>(matrix.get(batch, m, n));
  };
  const bool is_gelu = spec.activation == Activation::gelu;
  if (spec.bias) {
    v += static_cast<T>(bias.get(0, 0, n));
  }
  if (pre_value != nullptr) {
    *pre_value = v;
  }
  if (spec.gradient) {
    v *= is_gelu ? gelu_slope(at(gradient)) : at(gradient) > 0 ? T(1) : T(0);
  } else if (spec.activation != Activation::none) {
    v = is_gelu ? gelu_of(v) : std::max(v, T(0));
  }
  if (spec.residual) {
    v += at(residual);
  }
  if (spec.accumulate) {
    v += at(before_);
  }
  return v;
}

template double GemmCase::finish(double, int64_t, int64_t, int64_t, double*) const;
template float GemmCase::finish(float, int64_t, int64_t, int64_t, float*) const;

}  // namespace halftone::testing
