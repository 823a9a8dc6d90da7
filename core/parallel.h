// Data parallelism on one persistent pool of threads. Threads only pick indices: what an index
// computes, and where a range is cut, depends on the arguments alone, so results never depend on
// the number of threads as long as each index writes its own outputs. Nested calls, calls from a
// second thread while the pool is busy, and work of one piece run inline.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace halftone {

/// Number of threads that work on a parallel loop, the caller among them. Starts as the hardware's
/// concurrency.
int num_threads();

/// Sets it. Throws std::invalid_argument unless 1 <= count <= 1024, and std::logic_error inside a
/// parallel loop.
void set_num_threads(int count);

namespace detail {
void run_parallel(int64_t count, void (*call)(void*, int64_t), void* context);
}

/// Calls fn(index) once for every index in [0, count), in any order and on any thread; returns when
/// all are done. Waking the pool costs microseconds, so an index should be worth several. If calls
/// throw, no new index starts and the exception of the lowest throwing index, the one a serial loop
/// would meet, reaches the caller.
template <class Fn>
void parallel_for(int64_t count, Fn&& fn) {
  if (count == 1) {
    fn(int64_t{0});
    return;
  }
  using Function = std::remove_reference_t<Fn>;
  detail::run_parallel(
      count,
      [](void* context, int64_t index) { (*static_cast<Function*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
}

/// Calls fn(begin, end) for the consecutive ranges of `grain` elements that make up [0, size), the
/// last one shorter; otherwise as above. `grain` >= 1 is what one thread picks at a time; a size up
/// to it runs inline.
template <class Fn>
void parallel_for_range(int64_t size, int64_t grain, Fn&& fn) {
  const int64_t ranges = size / grain + (size % grain != 0);
  parallel_for(ranges, [&](int64_t index) {
    const int64_t begin = index * grain;
    fn(begin, size - begin < grain ? size : begin + grain);
  });
}

}  // namespace halftone
