// The pool: every index once, the lowest exception, nesting, and results that do not depend on the
// number of threads.
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace halftone {
namespace {

/// Restores the number of threads when a test ends.
class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_num_threads(GetParam()); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_P(Parallel, CallsEveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 3, 7, 100, 10007}) {
    std::vector<int> calls(count, 0);
    parallel_for(count, [&](int64_t i) { ++calls[i]; });
    EXPECT_EQ(calls, std::vector<int>(count, 1));
  }
}

TEST_P(Parallel, CutsRangesBySizeAndGrainAlone) {
  std::vector<std::pair<int64_t, int64_t>> ranges(4);
  parallel_for_range(10, 3, [&](int64_t begin, int64_t end) { ranges[begin / 3] = {begin, end}; });
  EXPECT_EQ(ranges, (std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 6}, {6, 9}, {9, 10}}));
  parallel_for_range(
      0, 3, [&](int64_t, int64_t) { ADD_FAILURE() << "an empty size has no range"; });
  parallel_for_range(INT64_MAX, INT64_MAX, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, INT64_MAX);
  });
}

TEST_P(Parallel, ThrowsWhatTheLowestThrowingIndexThrew) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::string message;
    try {
      parallel_for(100, [](int64_t i) {
        if (i % 10 == 7) {
          throw std::runtime_error(std::to_string(i));
        }
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    ASSERT_EQ(message, "7");
  }
  std::atomic<int> calls{0};
  parallel_for(50, [&](int64_t) { ++calls; });
  EXPECT_EQ(calls, 50) << "the pool works on after an exception";
}

TEST_P(Parallel, RunsNestedLoopsInline) {
  std::vector<std::vector<std::thread::id>> ids(8, std::vector<std::thread::id>(8));
  parallel_for(8, [&](int64_t i) {
    parallel_for(8, [&](int64_t j) { ids[i][j] = std::this_thread::get_id(); });
  });
  for (const auto& row : ids) {
    EXPECT_EQ(row, std::vector<std::thread::id>(8, row[0]));
  }
}

TEST_P(Parallel, ServesCallersOnSeveralThreads) {
  std::vector<int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (int64_t& sum : sums) {
    callers.emplace_back([&sum] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        std::vector<int64_t> values(64);
        parallel_for(64, [&](int64_t i) { values[i] = i; });
        sum += std::accumulate(values.begin(), values.end(), int64_t{0});
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(sums, std::vector<int64_t>(4, 100 * 63 * 64 / 2));
}

TEST_P(Parallel, WakesSleepingWorkersManyTimes) {
  std::vector<int> calls(16, 0);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(repeat * 10));  // before and after they fall asleep
    parallel_for(16, [&](int64_t i) { ++calls[i]; });
  }
  EXPECT_EQ(calls, std::vector<int>(16, 50));
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 3, 8));

TEST(ParallelPool, UsesTheThreadsItIsGiven) {
  const int before = num_threads();
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  std::atomic<int> inside{0};  // three indices that wait for each other need three threads
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel_for(3, [&](int64_t) {
    ++inside;
    while (inside < 3 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
    }
    EXPECT_EQ(inside, 3);
  });
  set_num_threads(before);
}

TEST(ParallelPool, RefusesBadCounts) {
  EXPECT_THROW(set_num_threads(0), std::invalid_argument);
  EXPECT_THROW(set_num_threads(-1), std::invalid_argument);
  EXPECT_THROW(set_num_threads(1025), std::invalid_argument);
  const int before = num_threads();
  set_num_threads(2);
  EXPECT_THROW(parallel_for(2, [](int64_t) { set_num_threads(1); }), std::logic_error);
  set_num_threads(before);
}

}  // namespace
}  // namespace halftone
