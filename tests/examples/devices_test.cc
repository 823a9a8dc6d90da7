// The programs on every device: what works on the CPU works on a GPU, a run may change devices, and
// where recipes name the arithmetic of the GPU's own accumulator the bits are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "data/files.h"
#include "data/hdf5_file.h"
#include "data/synthetic.h"
#include "tests/support/devices.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone::testing {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// 256 generated digits to train on, as IDX files, made once.
const std::string& digits() {
  static const TempFolder folder;
  static const std::string path = [] {
    write_idx_folder(synthetic_digits(256, 64), folder.path());
    return folder.path().string();
  }();
  return path;
}

// A program that ends well, and what it printed.
std::string run_ok(const std::string& program, const Words& words, const std::string& device) {
  const ProgramResult r = run_program(built(program), words + Words{"--device", device});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return r.out;
}

ProgramResult train_mlp(const Words& words, const std::string& device) {
  return run_program(built("train_mlp"), words + Words{"--data", digits(), "--device", device});
}

// A new run, of 20 steps and small.
const Words kSmall{"--hidden", "32", "--batch", "24", "--steps", "20", "--dropout", "0.1"};

void train_ok(const Words& words, const std::string& device) {
  run_ok("train_mlp", words + Words{"--data", digits()}, device);
}

// The same for a decoder of characters.
const Words kSmallGpt{"--layers",
                      "2",
                      "--heads",
                      "2",
                      "--width",
                      "32",
                      "--context",
                      "24",
                      "--batch",
                      "5",
                      "--steps",
                      "12",
                      "--warmup",
                      "2",
                      "--dropout",
                      "0.1"};
const Words kCorpus{"--data", HALFTONE_SOURCE_DIR "/data/samples/halftone.txt"};

void train_gpt_ok(const Words& words, const std::string& device) {
  run_ok("train_gpt", words + kCorpus, device);
}

std::string text_of(const std::string& checkpoint, const std::string& device) {
  return run_ok("generate", {"--from", checkpoint, "--tokens", "40", "--quiet"}, device);
}

std::string content_of(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// The lines of a log with an event, without what depends on the clock.
Words events(const std::string& path, const std::string& event) {
  std::istringstream in(content_of(path));
  Words lines;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("{\"event\":\"" + event + "\"")) {
      lines.push_back(line.substr(0, line.find("_per_s\"")));
    }
  }
  return lines;
}

class OnDevice : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (device() == "cuda") {
      HALFTONE_SKIP_WITHOUT_GPU();
    }
  }
  static const std::string& device() { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Programs, OnDevice, ::testing::Values("cpu", "cuda"), [](const auto& it) {
  return it.param;
});

TEST_P(OnDevice, SaysWhereItTrains) {
  const ProgramResult r = train_mlp(kSmall + Words{"--precision", "fp8-block"}, device());
  EXPECT_EQ(r.exit_code, 0) << r.err;
  expect_holds(r.out,
               device() == "cpu" ? "device cpu (" : "device cuda:0 (NVIDIA",
               device() == "cpu" ? "emulated (via fp32)" : "emulated (via fp16), by mma",
               "accuracy",
               "done: 20 of 20 steps");
}

TEST_P(OnDevice, AResumedRunIsTheUninterruptedOne) {
  for (const char* recipe : {"fp16", "fp8-delayed", "bf16-pure,update=stochastic"}) {
    const TempFolder folder;
    const Words common = kSmall + Words{"--precision", recipe, "--grad-accum", "2"} +
                         Words{"--eval-every", "5", "--histograms", "4"};
    const std::string log = folder / "part.jsonl";
    train_ok(common + Words{"--out", folder / "whole.h5", "--log", folder / "whole.jsonl"},
             device());
    train_ok(common + Words{"--out", folder / "part.h5", "--log", log, "--stop-after", "7"},
             device());
    train_ok({"--resume", folder / "part.h5", "--log", log}, device());
    EXPECT_EQ(read_file(folder / "part.h5"), read_file(folder / "whole.h5")) << recipe;
    for (const char* event : {"step", "eval"}) {
      EXPECT_EQ(events(log, event), events(folder / "whole.jsonl", event)) << recipe;
    }
  }
}

TEST_P(OnDevice, ParametersAndRowsAreTheCpus) {
  const TempFolder folder;
  const Words common = kSmall + Words{"--grad-accum", "3", "--overwrite"};
  for (const std::string& where : {std::string("cpu"), device()}) {
    train_ok(common + Words{"--out", folder / "init.h5", "--stop-after", "0"}, where);
    train_ok(common + Words{"--init", folder / "init.h5", "--out", folder / (where + ".h5")} +
                 Words{"--stop-after", "0"},
             where);
    train_ok(common + Words{"--dump-batches", folder / (where + ".rows")}, where);
  }
  EXPECT_EQ(read_file(folder / (device() + ".h5")), read_file(folder / "cpu.h5"));
  EXPECT_EQ(read_file(folder / (device() + ".rows")), read_file(folder / "cpu.rows"));
}

TEST_P(OnDevice, AResumedDecoderIsTheUninterruptedOneAndWrites) {
  for (const char* recipe : {"fp32", "fp16", "fp8-block"}) {
    const TempFolder folder;
    const Words common = kSmallGpt + Words{"--precision", recipe, "--grad-accum", "2"};
    const std::string log = folder / "part.jsonl";
    train_gpt_ok(common + Words{"--out", folder / "whole.h5", "--log", folder / "whole.jsonl"},
                 device());
    train_gpt_ok(common + Words{"--out", folder / "part.h5", "--log", log, "--stop-after", "5"},
                 device());
    train_gpt_ok({"--resume", folder / "part.h5", "--log", log}, device());
    EXPECT_EQ(read_file(folder / "part.h5"), read_file(folder / "whole.h5")) << recipe;
    EXPECT_EQ(events(log, "step"), events(folder / "whole.jsonl", "step")) << recipe;
    EXPECT_EQ(text_of(folder / "part.h5", device()), text_of(folder / "whole.h5", device()));
  }
}

TEST_P(OnDevice, FlagsWithoutMeaningThereAreWrongUsage) {
  const bool on_cpu = device() == "cpu";
  for (const Words& words : {on_cpu ? Words{"--graph", "off"} : Words{"--threads", "2"},
                             Words{"--gemm", on_cpu ? "wgmma" : "eigen"}}) {
    const ProgramResult r = train_mlp(kSmall + words, device());
    EXPECT_EQ(r.exit_code, 2) << r.err;
    expect_holds(r.err, words[0]);
  }
  train_ok(kSmall + Words{"--exact"}, device());
  train_ok(kSmall + Words{"--gemm", on_cpu ? "eigen" : "simt"}, device());
}

constexpr const char* kSameBits[] = {
    "bf16,acc=hopper16", "fp16,acc=hopper16", "fp8-block,acc=hopper16"};

TEST(Devices, LossesAreTheCpus) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : kSameBits) {
    const TempFolder folder;
    for (const std::string where : {"cpu", "cuda"}) {
      train_ok(kSmall + Words{"--precision", recipe, "--exact", "--grad-accum", "2"} +
                   Words{"--eval-every", "10", "--log", folder / (where + ".jsonl")},
               where);
    }
    for (const char* event : {"step", "eval"}) {
      EXPECT_EQ(events(folder / "cuda.jsonl", event), events(folder / "cpu.jsonl", event))
          << recipe;
    }
  }
}

TEST(Devices, ADecodersLossesAndTextAreTheCpus) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : kSameBits) {
    const TempFolder folder;
    const Words common = kSmallGpt + Words{"--precision", recipe, "--exact", "--grad-accum", "2"};
    for (const std::string where : {"cpu", "cuda"}) {
      train_gpt_ok(common + Words{"--eval-every", "6", "--log", folder / (where + ".jsonl")} +
                       Words{"--out", folder / (where + ".h5")},
                   where);
    }
    for (const char* event : {"step", "eval"}) {
      EXPECT_EQ(events(folder / "cuda.jsonl", event), events(folder / "cpu.jsonl", event))
          << recipe;
    }
    EXPECT_EQ(read_file(folder / "cuda.h5"), read_file(folder / "cpu.h5")) << recipe;
    EXPECT_EQ(text_of(folder / "cuda.h5", "cuda"), text_of(folder / "cpu.h5", "cpu")) << recipe;
  }
}

TEST(Devices, NothingWaitsBetweenLines) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const TempFolder folder;
  const std::string log = folder / "run.jsonl";
  // 20 steps with a line every 5, one batch shorter than the others, and an evaluation at the end.
  for (const char* graph : {"on", "off"}) {
    train_ok(kSmall + Words{"--print-every", "5", "--eval-every", "0", "--graph", graph} +
                 Words{"--log", log},
             "cuda");
    expect_holds(content_of(log), "\"sync_calls\":5");
  }
}

TEST(Devices, MemoryThatIsNotThereIsNamed) {
  HALFTONE_SKIP_WITHOUT_GPU();
  const ProgramResult r = train_mlp({"--hidden", "1000000,1000000", "--steps", "1"}, "cuda");
  EXPECT_EQ(r.exit_code, 1);
  expect_holds(r.err, "out of memory on cuda:0", "asked for 4003", "free", "lower --batch");
}

TEST(Devices, ARunMayMoveFromOneToTheOther) {
  HALFTONE_SKIP_WITHOUT_GPU();
  for (const char* recipe : kSameBits) {
    const TempFolder folder;
    const Words common = kSmall + Words{"--precision", recipe, "--exact"};
    train_ok(common + Words{"--out", folder / "whole.h5"}, "cpu");
    for (const auto& [from, to] : {std::pair{"cpu", "cuda"}, {"cuda", "cpu"}}) {
      train_ok(common + Words{"--out", folder / "run.h5", "--stop-after", "7", "--overwrite"},
               from);
      train_ok({"--resume", folder / "run.h5"}, to);
      EXPECT_EQ(read_file(folder / "run.h5"), read_file(folder / "whole.h5")) << recipe << from;
    }
  }
}

}  // namespace
}  // namespace halftone::testing
