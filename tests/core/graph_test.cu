#include "core/cuda/graph.h"

#include <gtest/gtest.h>

#include "core/cuda/launch.cuh"
#include "core/tensor.h"
#include "tests/support/devices.h"
#include "tests/support/throws.h"

namespace halftone {
namespace {

using testing::expect_holds;
using testing::kGpu;
using testing::message_of;

__global__ void increment_kernel(int32_t* x) { ++*x; }

void increment(const Tensor& x) { cuda::launch(increment_kernel, {1, 1}, x.data<int32_t>()); }

TEST(Graph, RepeatsWhatWasRecordedAndRunsNothingMeanwhile) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const Tensor x = Tensor::zeros({1}, DType::i32, kGpu);
  const cuda::Graph graph([&] {
    const Tensor copied = empty_like(x);  // a block that goes back to the pool at once
    copy(x, copied);
    increment(copied);
    copy(copied, x);
  });
  EXPECT_EQ(graph.num_nodes(), 3u);
  EXPECT_EQ(x.item(), 0.0);
  for (int i = 0; i < 50; ++i) {
    graph.replay();
    const Tensor other = Tensor::zeros({1}, DType::i32, kGpu);  // uses that block in between
  }
  EXPECT_EQ(x.item(), 50.0);
  memory_pool(kGpu).trim();
  graph.replay();
  EXPECT_EQ(x.item(), 51.0);
}

TEST(Graph, NamesWhatItCannotHold) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const Tensor x = Tensor::zeros({1}, DType::i32, kGpu);
  const auto record = [&](const std::function<void()>& body) {
    return message_of<CudaError>([&] { const cuda::Graph graph(body); });
  };
  expect_holds(record([&] { x.item(); }), "copies between host and device", "--graph off");
  expect_holds(record([] { cuda::synchronize(); }), "waits for the device", "--graph off");
  expect_holds(record([] { (void)cudaStreamSynchronize(cuda::stream()); }),
               "cannot be recorded as a CUDA graph",
               "--graph off");
  EXPECT_THROW(cuda::Graph([]() -> void { throw std::logic_error("own"); }), std::logic_error);
  increment(x);  // the stream works on, and so do graphs
  const cuda::Graph graph([&] { increment(x); });
  graph.replay();
  EXPECT_EQ(x.item(), 2.0);
}

}  // namespace
}  // namespace halftone
