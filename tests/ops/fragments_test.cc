// Fragment layouts on the host: known lanes, and every element held exactly once.
#include "ops/gemm/fragments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace halftone::fragments {
namespace {

static_assert(mma_c(13, 0) == Place{3, 2} && mma_c(13, 1) == Place{3, 3});
static_assert(mma_c(13, 2) == Place{11, 2} && mma_c(13, 3) == Place{11, 3});
static_assert(mma_a(13, 1, 0) == Place{11, 2} && mma_a(13, 2, 1) == Place{3, 11});
static_assert(mma_b(13, 1, 1) == Place{11, 3});
static_assert(wgmma_d(2, 13, 6) == Place{43, 10});

/// Counts the visits of each element of a rows x columns matrix.
class Coverage {
 public:
  Coverage(int rows, int columns) : columns_(columns), visits_(rows * columns) {}
  void visit(Place p) { ++visits_.at(p.row * columns_ + p.column); }
  bool all_once() const {
    return std::all_of(visits_.begin(), visits_.end(), [](int visits) { return visits == 1; });
  }

 private:
  int columns_;
  std::vector<int> visits_;
};

TEST(Fragments, HoldEveryElementOnce) {
  Coverage a(16, 16), b(16, 8), c(16, 8), plain(8, 8), transposed(8, 8), d(64, 256);
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) {
      a.visit(mma_a(lane, r, 0));
      a.visit(mma_a(lane, r, 1));
      c.visit(mma_c(lane, r));
    }
    for (int half = 0; half < 2; ++half) {
      b.visit(mma_b(lane, 0, half));
      b.visit(mma_b(lane, 1, half));
      plain.visit(ldmatrix(lane, half));
      transposed.visit(ldmatrix_trans(lane, half));
    }
    for (int warp = 0; warp < 4; ++warp) {
      for (int r = 0; r < 128; ++r) {
        d.visit(wgmma_d(warp, lane, r));
      }
    }
  }
  for (const Coverage* coverage : {&a, &b, &c, &plain, &transposed, &d}) {
    EXPECT_TRUE(coverage->all_once());
  }
}

TEST(Fragments, TransposingLoadSwapsRowAndColumn) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      const Place p = ldmatrix(lane, half);
      EXPECT_EQ(ldmatrix_trans(lane, half), (Place{p.column, p.row}));
      EXPECT_EQ(stmatrix(lane, half), p);
    }
  }
}

}  // namespace
}  // namespace halftone::fragments
