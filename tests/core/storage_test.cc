#include "core/storage.h"

#include <gtest/gtest.h>

#include "core/block_hold.h"
#include "core/tensor.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

// A source with little memory, so that running out can be tested.
class SmallSource : public BlockSource {
 public:
  void* allocate(size_t bytes) override {
    if (used_ + bytes > 4096) {
      return nullptr;
    }
    used_ += bytes;
    sizes_.push_back(bytes);
    return std::aligned_alloc(256, bytes);
  }
  void release(void* block) noexcept override {
    used_ -= sizes_.back();
    sizes_.pop_back();
    std::free(block);
  }
  size_t free_bytes() const override { return 4096 - used_; }

 private:
  size_t used_ = 0;
  std::vector<size_t> sizes_;
};

TEST(MemoryPool, TheSameRequestsGetTheSameAddresses) {
  MemoryPool& pool = memory_pool(Device{});
  auto one_step = [&] {
    std::vector<void*> addresses;
    const auto a = pool.allocate(1000, MemoryCategory::activations);
    auto b = pool.allocate(5000, MemoryCategory::activations);
    addresses.push_back(a->data());
    addresses.push_back(b->data());
    b = nullptr;
    addresses.push_back(pool.allocate(5000, MemoryCategory::workspace)->data());
    return addresses;
  };
  one_step();  // warms the free lists
  const std::vector<void*> second = one_step();
  EXPECT_EQ(second, one_step());
  EXPECT_EQ(second[1], second[2]);
}

TEST(MemoryPool, CountsLiveAndPeakBytesByCategory) {
  MemoryPool pool(Device{}, std::make_unique<SmallSource>());
  const auto weights = pool.allocate(1000, MemoryCategory::weights);
  {
    const auto scratch = pool.allocate(500, MemoryCategory::workspace);
    EXPECT_EQ(pool.stats().total.live_bytes, 1500);
  }
  const auto of = [&](MemoryCategory c) {
    return pool.stats().by_category[static_cast<size_t>(c)];
  };
  EXPECT_EQ(of(MemoryCategory::weights).live_bytes, 1000);
  EXPECT_EQ(of(MemoryCategory::workspace).live_bytes, 0);
  EXPECT_EQ(of(MemoryCategory::workspace).peak_bytes, 500);
  EXPECT_EQ(pool.stats().total.peak_bytes, 1500);
  pool.reset_peaks();
  EXPECT_EQ(of(MemoryCategory::workspace).peak_bytes, 0);
  EXPECT_EQ(pool.stats().total.peak_bytes, 1000);
}

TEST(MemoryPool, OutOfMemorySaysWhatWasAskedAndWhatIsFree) {
  MemoryPool pool(Device{}, std::make_unique<SmallSource>());
  const auto held = pool.allocate(2048, MemoryCategory::weights);
  pool.allocate(
      1024,
      MemoryCategory::workspace);  // goes to a free list, and is trimmed when memory runs short
  EXPECT_NO_THROW(pool.allocate(2048, MemoryCategory::activations));
  try {
    pool.allocate(3000, MemoryCategory::activations);
    FAIL() << "3000 bytes beside 2048 fit into 4096?";
  } catch (const OutOfMemory& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("asked for 3000 bytes of activations"), std::string::npos) << message;
    EXPECT_NE(message.find("2048 bytes in use and 2048 free"), std::string::npos) << message;
    EXPECT_NE(message.find("lower --batch"), std::string::npos) << message;
  }
}

TEST(MemoryPool, HeldBlocksStayWhenMemoryRunsShort) {
  MemoryPool pool(Device{}, std::make_unique<SmallSource>());
  const auto take = [&](size_t bytes) {
    return pool.allocate(bytes, MemoryCategory::activations)->data();
  };
  void* before = take(1024);
  auto hold = std::make_unique<BlockHold>();
  EXPECT_EQ(take(1024), before);  // used twice by what is recorded, held all the same
  EXPECT_EQ(take(1024), before);
  EXPECT_THROW(BlockHold{}, std::invalid_argument);
  hold->close();
  take(2048);
  EXPECT_NO_THROW(take(3072));  // 2048 bytes go back to the source; the held 1024 do not
  EXPECT_THROW(take(4096), OutOfMemory);
  EXPECT_EQ(take(1024), before);  // others may use it
  hold = nullptr;
  EXPECT_NO_THROW(take(4096));
}

TEST(MemoryPool, OutOfMemoryIsSilentAboutUnknownFreeMemory) {
  struct NoSource final : BlockSource {
    void* allocate(size_t) override { return nullptr; }
    void release(void*) noexcept override {}
    size_t free_bytes() const override { return 0; }
  };
  MemoryPool pool(Device{}, std::make_unique<NoSource>());
  const std::string message =
      testing::message_of<OutOfMemory>([&] { pool.allocate(64, MemoryCategory::weights); });
  EXPECT_NE(message.find("with 0 bytes in use; lower --batch, --hidden"), std::string::npos)
      << message;
}

TEST(StepScope, ATensorKeptPastItsStepThrowsWhenTouched) {
  Tensor kept;
  Tensor weights;
  {
    const StepScope step;
    kept = Tensor::zeros({4}, DType::f32);
    weights = Tensor::zeros({4}, DType::f32, {}, MemoryCategory::weights);
    EXPECT_NO_THROW(kept.raw());
  }
  EXPECT_THROW(kept.raw(), std::logic_error);
  EXPECT_NO_THROW(weights.raw());
  const StepScope next;
  EXPECT_THROW(kept.raw(), std::logic_error);
  EXPECT_THROW(StepScope{}, std::logic_error);
}

TEST(Storage, IsAlignedForVectorAccess) {
  for (const int64_t n : {1, 7, 1000}) {
    const Tensor t = Tensor::empty({n}, DType::bf16);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u);
  }
}

}  // namespace
}  // namespace halftone
