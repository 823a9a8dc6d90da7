#include "ops/gather_windows/gather_windows.h"

#include "ops/op.h"

namespace halftone {
namespace {

template <class Start>
void gather_windows_cpu(const Tensor& tokens, const Start& start, const TokenBatch& batch) {
  const int64_t length = batch.inputs.size(1);
  int32_t* inputs = batch.inputs.data<int32_t>();
  int32_t* targets = batch.targets.data<int32_t>();
  for_rows(batch.inputs.size(0), length, [=, token = tokens.data<int32_t>()](int64_t b) {
    const int32_t* from = token + start(b);
    std::copy_n(from, length, inputs + b * length);
    std::copy_n(from + 1, length, targets + b * length);
  });
}

template <class Start>
TokenBatch gather_windows(const Tensor& tokens, const Start& start, int64_t B, int64_t T) {
  const TokenBatch batch{Tensor::empty({B, T}, DType::i32, tokens.device()),
                         Tensor::empty({B, T}, DType::i32, tokens.device())};
  if (tokens.is_cpu()) {
    gather_windows_cpu(tokens, start, batch);
  } else if constexpr (kHasCuda) {
    detail::gather_windows_cuda(tokens, start, batch);
  }
  return batch;
}

void check_windows_of(const Tensor& tokens, int64_t B, int64_t T) {
  HALFTONE_CHECK(tokens.defined() && tokens.rank() == 1 && B >= 0 && T >= 1,
                 "gather_windows: ",
                 B,
                 " windows of ",
                 T,
                 ", expected at least 0 of at least 1, of tokens [N]");
  check_tensor("gather_windows", "tokens", tokens, DType::i32, tokens.shape());
}

}  // namespace

TokenBatch draw_windows(const Tensor& tokens, const CountedStream& stream, int64_t B, int64_t T) {
  check_windows_of(tokens, B, T);
  HALFTONE_CHECK(tokens.numel() > T,
                 "gather_windows: ",
                 tokens.numel(),
                 " tokens, expected more than the ",
                 T,
                 " of a window");
  return gather_windows(
      tokens, detail::DrawnStart{stream, static_cast<uint64_t>(tokens.numel() - T)}, B, T);
}

TokenBatch slice_windows(
    const Tensor& tokens, int64_t first, int64_t stride, int64_t B, int64_t T) {
  check_windows_of(tokens, B, T);
  const int64_t end = first + std::max<int64_t>(B - 1, 0) * stride + T + 1;
  HALFTONE_CHECK(first >= 0 && stride >= 0 && (B == 0 || end <= tokens.numel()),
                 "gather_windows: windows from ",
                 first,
                 " to ",
                 end,
                 " of ",
                 tokens.numel(),
                 " tokens");
  return gather_windows(tokens, detail::EvenStart{first, stride}, B, T);
}

}  // namespace halftone
