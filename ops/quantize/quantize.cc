#include "ops/quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/convert.h"
#include "core/dispatch.h"
#include "core/parallel.h"
#include "core/scales.h"
#include "ops/copy/strided_copy.h"

namespace halftone {
namespace {

constexpr int64_t kPanelRows = 128;  // rows whose column maxima are gathered together
constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using detail::BlockGrid;

// The blocks along the dimension kept and along K.
std::pair<int64_t, int64_t> block_of(const OperandPrecision& p) {
  constexpr int64_t kWhole = GemmScales::kWhole;
  switch (p.scaling) {
    case Scaling::none:
    case Scaling::tensor:
    case Scaling::delayed:
      return {kWhole, kWhole};
    case Scaling::row:
      return {1, kWhole};
    case Scaling::block:
    case Scaling::mx:
    case Scaling::nvfp4:
      return {p.block_mn, p.block_k};
  }
  throw std::logic_error("quantize: not a Scaling");
}

BlockGrid make_grid(const Tensor& x, const QuantizedMatrix& q) {
  BlockGrid g{};
  g.rows = x.size(0);
  g.columns = x.size(1);
  const int64_t along_rows = q.k_axis == 0 ? q.block_k : q.block_mn;
  const int64_t along_columns = q.k_axis == 0 ? q.block_mn : q.block_k;
  g.block_rows = std::clamp<int64_t>(along_rows, 1, std::max<int64_t>(g.rows, 1));
  g.block_columns = std::clamp<int64_t>(along_columns, 1, std::max<int64_t>(g.columns, 1));
  g.row_blocks = (g.rows + g.block_rows - 1) / g.block_rows;
  g.column_blocks = (g.columns + g.block_columns - 1) / g.block_columns;
  const int64_t pitch = ((q.k_axis == 0 ? g.column_blocks : g.row_blocks) + 3) / 4 * 4;
  g.row_stride = q.k_axis == 0 ? pitch : 1;
  g.column_stride = q.k_axis == 0 ? 1 : pitch;
  return g;
}

Tensor make_scales(const BlockGrid& g, int k_axis, Device device, MemoryCategory category) {
  const Shape shape =
      k_axis == 0 ? Shape{g.row_blocks, g.row_stride} : Shape{g.column_blocks, g.column_stride};
  const bool padded = (k_axis == 0 ? g.column_blocks : g.row_blocks) != shape[1];
  return padded ? Tensor::zeros(shape, DType::f32, device, category)
                : Tensor::empty(shape, DType::f32, device, category);
}

DType storage_of(const Format& format) {
  return format == kBf16      ? DType::bf16
         : format == kFp16    ? DType::f16
         : format.bits() <= 8 ? DType::u8
                              : DType::f32;
}

// Row r as FP32: in place where it is stored so, else converted into `scratch`.
const float* row_of(const Tensor& x, int64_t r, std::vector<float>& scratch) {
  const int64_t columns = x.size(1);
  const auto n = static_cast<size_t>(columns);
  scratch.resize(n);
  switch (x.dtype()) {
    case DType::f32:
      return x.data<float>() + r * columns;
    case DType::bf16:
      convert(x.data<BFloat16>() + r * columns, n, scratch.data());
      return scratch.data();
    case DType::f16:
      convert(x.data<Half>() + r * columns, n, scratch.data());
      return scratch.data();
    default:
      throw std::logic_error("quantize: dtype was checked");
  }
}

// One call's work. Maxima are compared as the bits of magnitudes, where NaN is the largest.
class Quantizer {
 public:
  Quantizer(const Tensor& x,
            const OperandPrecision& p,
            const QuantizeOptions& options,
            const BlockGrid& grid,
            const QuantizedMatrix& q)
      : x_(x),
        p_(p),
        options_(options),
        q_(q),
        grid_(grid),
        panel_rows_(std::min(grid_.block_rows, kPanelRows)),
        scales_(q.scales.defined() ? q.scales.data<float>() : nullptr) {}

  void run() {
    const int64_t panels = (grid_.rows + panel_rows_ - 1) / panel_rows_;
    if (p_.scaling == Scaling::none) {
      parallel_for(panels, [&](int64_t panel) { round_panel(panel, nullptr); });
      return;
    }
    // A panel that holds whole blocks, and depends on nothing outside them, is scaled and rounded
    // while it is in the cache.
    const bool local = grid_.block_rows <= kPanelRows && p_.scaling != Scaling::tensor &&
                       p_.scaling != Scaling::delayed && p_.scaling != Scaling::nvfp4;
    std::vector<uint32_t> amax(static_cast<size_t>(panels * grid_.column_blocks));
    parallel_for(panels, [&](int64_t panel) {
      uint32_t* panel_amax = amax.data() + panel * grid_.column_blocks;
      find_amax(panel, panel_amax);
      if (local) {
        set_scales(panel, panel_amax);
        round_scaled_panel(panel);
      }
    });
    if (local) {
      return;
    }
    uint32_t whole = 0;
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t block = panel * panel_rows_ / grid_.block_rows;
      for (int64_t c = 0; c < grid_.column_blocks; ++c) {
        const uint32_t value = amax[static_cast<size_t>(panel * grid_.column_blocks + c)];
        uint32_t& of_block = amax[static_cast<size_t>(block * grid_.column_blocks + c)];
        of_block = std::max(of_block, value);  // block <= panel: panels already read
        whole = std::max(whole, value);
      }
    }
    if (p_.scaling == Scaling::delayed) {
      const float delayed =
          detail::delayed_amax(*options_.history, options_.observe)(std::bit_cast<float>(whole));
      amax.assign(1, std::bit_cast<uint32_t>(delayed));
    }
    tensor_scale_ = nvfp4_tensor_scale(p_.format, std::bit_cast<float>(whole));
    parallel_for(grid_.row_blocks, [&](int64_t block) {
      set_scales(block, amax.data() + block * grid_.column_blocks);
    });
    parallel_for(panels, [&](int64_t panel) { round_scaled_panel(panel); });
  }

 private:
  int64_t first_row(int64_t panel) const { return panel * panel_rows_; }
  int64_t last_row(int64_t panel) const { return std::min(grid_.rows, (panel + 1) * panel_rows_); }

  void find_amax(int64_t panel, uint32_t* amax) const {
    std::vector<float> scratch;
    std::vector<uint32_t> column_max(static_cast<size_t>(grid_.columns), 0u);
    for (int64_t r = first_row(panel); r < last_row(panel); ++r) {
      const float* row = row_of(x_, r, scratch);
      for (int64_t c = 0; c < grid_.columns; ++c) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(row[c]) & kMagnitude;
        column_max[static_cast<size_t>(c)] =
            std::max(column_max[static_cast<size_t>(c)], magnitude);
      }
    }
    for (int64_t block = 0; block < grid_.column_blocks; ++block) {
      const int64_t begin = block * grid_.block_columns;
      const int64_t end = std::min(grid_.columns, begin + grid_.block_columns);
      uint32_t largest = 0;
      for (int64_t c = begin; c < end; ++c) {
        largest = std::max(largest, column_max[static_cast<size_t>(c)]);
      }
      amax[block] = largest;
    }
  }

  void set_scales(int64_t row_block, const uint32_t* amax) const {
    for (int64_t c = 0; c < grid_.column_blocks; ++c) {
      const float of_block = std::bit_cast<float>(amax[c]);
      scales_[row_block * grid_.row_stride + c * grid_.column_stride] =
          p_.scaling == Scaling::nvfp4
              ? nvfp4_block_scale(nvfp4_block_code(p_.format, of_block, tensor_scale_),
                                  tensor_scale_)
              : block_scale(p_.scale, p_.format, of_block);
    }
  }

  void round_scaled_panel(int64_t panel) const {
    const int64_t row_block = first_row(panel) / grid_.block_rows;
    std::vector<float> reciprocals(static_cast<size_t>(grid_.columns));
    for (int64_t c = 0; c < grid_.column_blocks; ++c) {
      const int64_t begin = c * grid_.block_columns;
      std::fill(reciprocals.begin() + begin,
                reciprocals.begin() + std::min(grid_.columns, begin + grid_.block_columns),
                reciprocal_scale(scales_[row_block * grid_.row_stride + c * grid_.column_stride]));
    }
    round_panel(panel, reciprocals.data());
  }

  void round_panel(int64_t panel, const float* reciprocals) const {
    const auto n = static_cast<size_t>(grid_.columns);
    std::vector<float> scratch;
    std::vector<float> scaled(n);
    std::vector<uint32_t> draws(p_.round == Rounding::stochastic ? n : 0);
    const RandomStream stream =
        draws.empty() ? RandomStream{} : options_.random.stream(options_.purpose);
    for (int64_t r = first_row(panel); r < last_row(panel); ++r) {
      const float* row = row_of(x_, r, scratch);
      if (reciprocals != nullptr) {
        for (size_t c = 0; c < n; ++c) {
          scaled[c] = row[c] * reciprocals[c];
        }
        row = scaled.data();
      }
      if (!draws.empty()) {
        fill_draws(stream, static_cast<uint64_t>(r) * n, n, draws.data());
      }
      store_row(row, r, n, {.rounding = p_.round, .draws = draws.data()});
    }
  }

  void store_row(const float* row, int64_t r, size_t n, const RoundingMode& mode) const {
    const Format f = p_.format;
    const int64_t at = r * grid_.columns;
    switch (q_.values.dtype()) {
      case DType::u8:
        encode_scaled(f, row, 1.0f, n, q_.values.data<uint8_t>() + at, mode);
        return;
      case DType::f32:
        round_scaled(f, row, 1.0f, n, q_.values.data<float>() + at, mode);
        return;
      default:  // 16-bit values
        auto* out = static_cast<uint16_t*>(q_.values.raw()) + at;
        for (size_t c = 0; c < n; ++c) {
          const uint32_t draw = mode.draws == nullptr ? 0 : mode.draws[c];
          out[c] = static_cast<uint16_t>(encode(f, row[c], mode.rounding, mode.overflow, draw));
        }
    }
  }

  const Tensor& x_;
  const OperandPrecision& p_;
  const QuantizeOptions& options_;
  const QuantizedMatrix& q_;
  BlockGrid grid_;
  int64_t panel_rows_;
  float* scales_;
  float tensor_scale_ = 0.0f;
};

GemmOperand make_operand(const QuantizedMatrix& q, bool transposed) {
  GemmOperand operand{.data = q.values.raw(),
                      .format = q.format,
                      .transposed = transposed,
                      .stride = q.values.size(1)};
  if (q.scales.defined()) {
    operand.scales = {q.scales.data<float>(), q.block_mn, q.block_k, 1, q.scales.size(1)};
  }
  return operand;
}

}  // namespace

AmaxHistory make_amax_history(int length, Device device) {
  AmaxHistory history;
  history.amax = Tensor::zeros({length}, DType::f32, device, MemoryCategory::quantized);
  history.pushed = Tensor::zeros({1}, DType::i64, device, MemoryCategory::quantized);
  history.pending = to_device(Tensor::from<float>({-1.0f}, {1}, MemoryCategory::quantized), device);
  return history;
}

void push_amax(AmaxHistory& history) {
  if (history.amax.is_cpu()) {
    detail::push_amax(history.amax.data<float>(),
                      history.amax.numel(),
                      history.pushed.data<int64_t>(),
                      history.pending.data<float>());
  } else if constexpr (kHasCuda) {
    detail::push_amax_cuda(history);
  }
}

GemmOperand QuantizedMatrix::as_a() const { return make_operand(*this, k_axis == 0); }
GemmOperand QuantizedMatrix::as_b() const { return make_operand(*this, k_axis == 1); }

QuantizedMatrix QuantizedMatrix::along(int axis) const {
  QuantizedMatrix q = *this;
  if (axis == k_axis) {
    return q;
  }
  HALFTONE_CHECK(block_mn == block_k,
                 "QuantizedMatrix: blocks of ",
                 block_mn,
                 "x",
                 block_k,
                 " do not serve the other axis; quantise the source along it");
  q.k_axis = axis;
  if (scales.defined() && block_k != GemmScales::kWhole) {
    // Square blocks: the same numbers, with K blocks outermost again.
    const int64_t blocks_k = (values.size(axis) + block_k - 1) / block_k;
    const int64_t blocks_mn = (values.size(1 - axis) + block_mn - 1) / block_mn;
    q.scales = Tensor::zeros({blocks_k, (blocks_mn + 3) / 4 * 4},
                             DType::f32,
                             scales.device(),
                             MemoryCategory::quantized);
    const Shape shape{blocks_k, blocks_mn};
    const std::vector<int64_t> from_strides{1, scales.size(1)};
    const std::vector<int64_t> to_strides{q.scales.size(1), 1};
    if (scales.is_cpu()) {
      strided_copy<false>(
          shape, scales.data<float>(), from_strides, q.scales.data<float>(), to_strides);
    } else if constexpr (kHasCuda) {
      detail::strided_copy_cuda(shape, scales, from_strides, q.scales, to_strides, 0, false);
    }
  }
  return q;
}

bool serves_both_axes(const OperandPrecision& p) {
  const auto [block_mn, block_k] = block_of(p);
  return block_mn == block_k;
}

QuantizedMatrix quantize(const Tensor& x,
                         int k_axis,
                         const OperandPrecision& p,
                         const QuantizeOptions& options) {
  HALFTONE_CHECK(x.rank() == 2, "quantize: x has shape ", x.shape(), ", expected [rows, columns]");
  HALFTONE_CHECK(k_axis == 0 || k_axis == 1, "quantize: k_axis is ", k_axis, ", expected 0 or 1");
  HALFTONE_CHECK(x.is_contiguous(), "quantize: x is not contiguous");
  QuantizedMatrix q;
  q.format = p.format;
  q.k_axis = k_axis;
  const bool unscaled = p.scaling == Scaling::none;
  // What the GEMM reads as it stands: values of the format already, FP64 in gradient checks, and
  // TF32, which the GEMM rounds.
  const bool stored_so = x.dtype() == storage_of(p.format) &&
                         (p.format == kFp32 || p.format == kBf16 || p.format == kFp16);
  const bool tf32 = p.format == kTf32 && x.dtype() == DType::f32 && p.round == Rounding::nearest;
  const bool f64 = x.dtype() == DType::f64 && p.format == kFp32;
  if (unscaled && (stored_so || tf32 || f64)) {
    q.values = x.detach();
    return q;
  }
  HALFTONE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f16,
                 "quantize: x is ",
                 x.dtype(),
                 ", expected f32, bf16 or f16");
  HALFTONE_CHECK(p.scaling != Scaling::delayed || options.history != nullptr,
                 "quantize: delayed scaling needs an amax history");
  HALFTONE_CHECK(p.round != Rounding::stochastic || options.random.counters.defined(),
                 "quantize: stochastic rounding needs a random source");
  HALFTONE_CHECK(unscaled || p.scale != ScaleRule::e4m3 || p.scaling == Scaling::nvfp4,
                 "quantize: e4m3 scales belong to nvfp4 scaling");
  std::tie(q.block_mn, q.block_k) = block_of(p);
  HALFTONE_CHECK(q.block_mn > 0 && q.block_k > 0,
                 "quantize: block of ",
                 q.block_mn,
                 "x",
                 q.block_k,
                 ", expected at least 1x1");
  q.values = Tensor::empty(x.shape(), storage_of(p.format), x.device(), options.category);
  const BlockGrid grid = make_grid(x, q);
  if (!unscaled) {
    q.scales = make_scales(grid, k_axis, x.device(), options.category);
  }
  if (x.is_cpu()) {
    Quantizer(x, p, options, grid, q).run();
  } else if constexpr (kHasCuda) {
    detail::quantize_cuda(x, p, options, grid, q);
  }
  return q;
}

Tensor dequantize(const QuantizedMatrix& q) {
  require_cpu("dequantize", q.values);
  const int64_t rows = q.values.size(0);
  const int64_t columns = q.values.size(1);
  Tensor y = Tensor::empty(q.values.shape(), DType::f32, q.values.device());
  const int64_t block_rows = q.k_axis == 0 ? q.block_k : q.block_mn;
  const int64_t block_columns = q.k_axis == 0 ? q.block_mn : q.block_k;
  dispatch_all(q.values.dtype(), "dequantize", [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const T stored = q.values.data<T>()[r * columns + c];
        float value = 0.0f;
        if constexpr (std::is_same_v<T, uint8_t>) {
          value = decode(q.format, stored);
        } else {
          value = static_cast<float>(widen(stored));
        }
        if (q.scales.defined()) {
          const int64_t rb = r / block_rows;
          const int64_t cb = c / block_columns;
          const int64_t pitch = q.scales.size(1);
          value *= q.scales.data<float>()[q.k_axis == 0 ? rb * pitch + cb : cb * pitch + rb];
        }
        y.data<float>()[r * columns + c] = value;
      }
    }
  });
  return y;
}

}  // namespace halftone
