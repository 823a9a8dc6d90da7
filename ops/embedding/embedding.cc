#include "ops/embedding/embedding.h"

#include <vector>

#include "core/reduce.h"
#include "ops/rows.h"

namespace halftone {
namespace {

template <class C>
void forward(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y) {
  const int64_t columns = table.size(1);
  const Rows<C> from(table, columns);
  const Rows<C> position_rows = positions.defined() ? Rows<C>(positions, columns) : Rows<C>();
  const Rows<C> to(y, columns);
  const int64_t period = positions.defined() ? tokens.size(1) : 1;
  for_rows(tokens.numel(), columns, [&, token = tokens.data<int32_t>()](int64_t n) {
    thread_local std::vector<C> scratch;
    scratch.resize(static_cast<size_t>(2 * columns));
    C* v = scratch.data();
    C* p = v + columns;
    from.load(token[n], v);
    if (positions.defined()) {
      position_rows.load(n % period, p);
      for (int64_t c = 0; c < columns; ++c) {
        v[c] += p[c];
      }
    }
    to.store(n, v);
  });
}

// The places of each token, ascending: those of token v are places[begin[v]] to places[begin[v + 1]
// - 1].
struct PlacesByToken {
  std::vector<int64_t> begin;
  std::vector<int64_t> places;
};

PlacesByToken sort_by_token(const Tensor& tokens, int64_t vocab) {
  const int32_t* token = tokens.data<int32_t>();
  const int64_t n = tokens.numel();
  PlacesByToken sorted{std::vector<int64_t>(static_cast<size_t>(vocab + 1), 0),
                       std::vector<int64_t>(static_cast<size_t>(n))};
  for (int64_t i = 0; i < n; ++i) {
    ++sorted.begin[static_cast<size_t>(token[i]) + 1];
  }
  for (size_t v = 1; v < sorted.begin.size(); ++v) {
    sorted.begin[v] += sorted.begin[v - 1];
  }
  std::vector<int64_t> next(sorted.begin.begin(), sorted.begin.end() - 1);
  for (int64_t i = 0; i < n; ++i) {
    sorted.places[static_cast<size_t>(next[static_cast<size_t>(token[i])]++)] = i;
  }
  return sorted;
}

template <class C>
void table_gradient(const Tensor& tokens, const Tensor& dy, const GradSink& dtable) {
  const int64_t vocab = dtable.buffer.size(0);
  const int64_t columns = dtable.buffer.size(1);
  const PlacesByToken sorted = sort_by_token(tokens, vocab);
  const Rows<C> from(dy, columns);
  const Rows<C> to(dtable.buffer, columns);
  for_rows(vocab, columns, [&](int64_t v) {
    const int64_t begin = sorted.begin[static_cast<size_t>(v)];
    const int64_t end = sorted.begin[static_cast<size_t>(v) + 1];
    if (begin == end && dtable.accumulate) {
      return;
    }
    thread_local std::vector<C> scratch;
    scratch.assign(static_cast<size_t>(2 * columns), C(0));
    C* sum = scratch.data();
    C* row = sum + columns;
    for (int64_t i = begin; i < end; ++i) {
      from.load(sorted.places[static_cast<size_t>(i)], row);
      for (int64_t c = 0; c < columns; ++c) {
        sum[c] += row[c];
      }
    }
    to.store(v, sum, dtable.accumulate);
  });
}

template <class C>
void position_gradient(const Tensor& tokens, const Tensor& dy, const GradSink& dpositions) {
  const int64_t batch = tokens.size(0);
  const int64_t row_elements = tokens.size(1) * dy.size(-1);  // of one sequence
  std::vector<C> sums(static_cast<size_t>(row_elements));
  dispatch_floating(dy.dtype(), "embedding", [&]<class T>() {
    const T* g = dy.data<T>();
    column_sum<C>(
        batch,
        row_elements,
        [=](int64_t b, int64_t i) { return static_cast<C>(widen(g[b * row_elements + i])); },
        sums.data());
  });
  if (!dpositions.accumulate) {
    fill_zero(dpositions.buffer);  // positions past the sequence
  }
  Rows<C>(dpositions.buffer, row_elements).store(0, sums.data(), dpositions.accumulate);
}

void check_tokens(const Tensor& tokens, int64_t vocab) {
  for (int64_t n = 0; n < tokens.numel(); ++n) {
    const int32_t token = tokens.data<int32_t>()[n];
    HALFTONE_CHECK(token >= 0 && token < vocab,
                   "embedding: token ",
                   token,
                   " at place ",
                   n,
                   " is outside [0, ",
                   vocab,
                   ")");
  }
}

}  // namespace

Tensor embedding(const Tensor& tokens,
                 const Tensor& table,
                 const Tensor& positions,
                 std::optional<DType> dtype) {
  check_contiguous("embedding", "tokens", tokens);
  check_floating("embedding", "table", table);
  HALFTONE_CHECK(tokens.dtype() == DType::i32,
                 "embedding: tokens have dtype ",
                 tokens.dtype(),
                 ", expected i32");
  HALFTONE_CHECK(
      table.rank() == 2, "embedding: table has shape ", table.shape(), ", expected [V, C]");
  HALFTONE_CHECK(tokens.device() == table.device(),
                 "embedding: tokens live on ",
                 to_string(tokens.device()),
                 ", the table on ",
                 to_string(table.device()));
  const DType out = dtype.value_or(table.dtype());
  HALFTONE_CHECK(is_floating(out) && (out == DType::f64) == (table.dtype() == DType::f64),
                 "embedding: y cannot be ",
                 out,
                 " where the table is ",
                 table.dtype());
  if (positions.defined()) {
    check_floating("embedding", "positions", positions);
    HALFTONE_CHECK(tokens.rank() == 2 && positions.rank() == 2 &&
                       positions.size(0) >= tokens.size(1) && positions.size(1) == table.size(1) &&
                       positions.dtype() == table.dtype(),
                   "embedding: positions are ",
                   positions.dtype(),
                   " ",
                   positions.shape(),
                   ", expected ",
                   table.dtype(),
                   " [T or more, ",
                   table.size(1),
                   "] for tokens [B, T], which are ",
                   tokens.shape());
  }
  std::vector<int64_t> dims = tokens.shape().dims();
  dims.push_back(table.size(1));
  Tensor y = Tensor::empty(Shape(std::move(dims)), out, table.device());
  if (table.is_cpu()) {
    check_tokens(tokens, table.size(0));
    dispatch_compute(out, [&]<class C>() { forward<C>(tokens, table, positions, y); });
  } else if constexpr (kHasCuda) {
    detail::embedding_cuda(tokens, table, positions, y);
  }
  record({table, positions},
         y,
         [tokens](const Tensor& dy, const GradSink& dtable, const GradSink& dpositions) {
           if (dy.is_cpu()) {
             dispatch_compute(dy.dtype(), [&]<class C>() {
               if (dtable) {
                 table_gradient<C>(tokens, dy, dtable);
               }
               if (dpositions) {
                 position_gradient<C>(tokens, dy, dpositions);
               }
             });
           } else if constexpr (kHasCuda) {
             if (dtable) {
               detail::table_gradient_cuda(tokens, dy, dtable);
             }
             if (dpositions) {
               detail::position_gradient_cuda(tokens, dy, dpositions);
             }
           }
         });
  return y;
}

}  // namespace halftone
