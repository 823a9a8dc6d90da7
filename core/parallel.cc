// The pool. One 32-bit word says whether a job is open, which one it is, and how many workers have
// joined it. A worker joins by a compare-and-swap that succeeds only while the job is open; the
// caller works too, closes the job when no index is left, and waits for those who joined. So a
// worker that wakes up late is never waited for, and never touches a job that is gone.
#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"

namespace halftone {
namespace {

constexpr uint32_t kJoinedMask = 0xFFFF;  // workers inside the current job
constexpr uint32_t kOpen = 0x10000;       // workers may join
constexpr uint32_t kGeneration =
    0x20000;  // counts jobs in the bits from here up; wraps, harmlessly
constexpr uint32_t kGenerationMask = ~(kGeneration - 1);

// Longer than the gaps between the ops of a training step, so that inside a step nobody goes to
// sleep.
constexpr std::chrono::microseconds kSpinTime{100};

thread_local bool in_parallel_loop = false;

int hardware_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as done() is; false after kSpinTime, or at once where threads outnumber processors
// and spinning would only keep the others from running.
template <class Done>
bool spin_until(bool may_spin, Done&& done) {
  if (done()) {
    return true;
  }
  if (!may_spin) {
    return false;
  }
  const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (done()) {
        return true;
      }
    }
  } while (std::chrono::steady_clock::now() < give_up);
  return false;
}

// Contended words have a cache line each. NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }

  ~Pool() { stop(); }

  int size() const { return size_.load(std::memory_order_relaxed); }

  void resize(int count) {
    const std::lock_guard lock(caller_);
    stop();
    size_.store(count, std::memory_order_relaxed);
    may_spin_ = count <= hardware_threads();
  }

  void run(int64_t count, void (*call)(void*, int64_t), void* context) {
    if (in_parallel_loop || size() == 1 || !caller_.try_lock()) {
      for (int64_t i = 0; i < count; ++i) {
        call(context, i);
      }
      return;
    }
    const std::lock_guard lock(caller_, std::adopt_lock);
    while (static_cast<int>(workers_.size()) < size() - 1) {
      workers_.emplace_back([this] { worker_loop(); });
    }
    call_ = call;
    context_ = context;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    failed_index_ = std::numeric_limits<int64_t>::max();
    state_.store(((state_.load() & kGenerationMask) + kGeneration) | kOpen);
    state_.notify_all();
    in_parallel_loop = true;
    work();
    in_parallel_loop = false;
    state_.fetch_and(~kOpen);
    wait_for_joined();
    if (failure_) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  void stop() {
    stopping_.store(true);
    state_.fetch_add(kGeneration);
    state_.notify_all();
    for (std::thread& worker : workers_) {
      worker.join();
    }
    workers_.clear();
    stopping_.store(false);
  }

  void worker_loop() {
    in_parallel_loop = true;  // for whatever a job calls
    uint32_t finished = 0;    // generation of the last job this worker took part in
    for (;;) {
      uint32_t state = 0;
      const auto news = [&] {
        state = state_.load();
        return stopping_.load() || ((state & kOpen) != 0 && (state & kGenerationMask) != finished);
      };
      if (!spin_until(may_spin_, news)) {
        state_.wait(state);
        continue;
      }
      if (stopping_.load()) {
        return;
      }
      if (!state_.compare_exchange_weak(state, state + 1)) {
        continue;
      }
      finished = state & kGenerationMask;
      work();
      const uint32_t before = state_.fetch_sub(1);
      if ((before & kJoinedMask) == 1) {
        left_.fetch_add(1);
        left_.notify_one();
      }
    }
  }

  // Takes indices until none is left. Indices are handed out in ascending order, so when one
  // throws, every lower one has been taken and will finish: the lowest failure is the same whatever
  // the timing.
  void work() {
    for (;;) {
      const int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) {
        break;
      }
      try {
        call_(context_, index);
      } catch (...) {
        next_.store(count_, std::memory_order_relaxed);
        const std::lock_guard lock(failure_mutex_);
        if (index < failed_index_) {
          failed_index_ = index;
          failure_ = std::current_exception();
        }
      }
    }
  }

  void wait_for_joined() {
    const auto empty = [&] { return (state_.load() & kJoinedMask) == 0; };
    while (true) {
      const uint32_t left = left_.load();
      if (spin_until(may_spin_, empty)) {
        return;
      }
      left_.wait(left);
    }
  }

  std::mutex caller_;  // held by the one thread whose loop the pool runs
  std::atomic<int> size_{hardware_threads()};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;  // size() - 1 of them, started by the first loop

  bool may_spin_ = true;  // written only while there are no workers

  // The job: written by the caller while no worker is joined, read by those who join.
  void (*call_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  std::mutex failure_mutex_;
  int64_t failed_index_ = 0;
  std::exception_ptr failure_;

  alignas(64) std::atomic<uint32_t> state_{0};
  alignas(64) std::atomic<uint32_t> left_{
      0};  // changes whenever the last joined worker leaves: what the caller sleeps on
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace

int num_threads() { return Pool::instance().size(); }

void set_num_threads(int count) {
  HALFTONE_CHECK(
      count >= 1 && count <= 1024, "set_num_threads: expected 1 to 1024 threads, found ", count);
  if (in_parallel_loop) {
    throw std::logic_error("set_num_threads: called inside a parallel loop");
  }
  Pool::instance().resize(count);
}

void detail::run_parallel(int64_t count, void (*call)(void*, int64_t), void* context) {
  if (count > 0) {
    Pool::instance().run(count, call, context);
  }
}

}  // namespace halftone
