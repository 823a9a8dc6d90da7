// train_mlp as its users meet it: flags, messages, exit codes, files.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "data/files.h"
#include "data/hdf5_file.h"
#include "data/run_lock.h"
#include "data/synthetic.h"
#include "models/json.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/throws.h"

namespace halftone::testing {
namespace {

using Words = std::vector<std::string>;

// 256 generated digits to train on, as IDX files, made once.
const std::filesystem::path& data_folder() {
  static const TempFolder folder;
  static const bool is_made = [] {
    write_idx_folder(synthetic_digits(256, 64), folder.path());
    return true;
  }();
  (void)is_made;
  return folder.path();
}

// On the CPU, unless the words name a device: tests/examples/devices_test.cc has the others.
ProgramResult run_mlp(Words words, const RunOptions& options = {}) {
  const Words common{"--hidden", "32", "--batch", "16"};
  words.insert(words.end(), common.begin(), common.end());
  if (std::find(words.begin(), words.end(), "--device") == words.end()) {
    words.insert(words.end(), {"--device", "cpu", "--threads", "2"});
  }
  return run_program(built("train_mlp"), words, options);
}

// The same on the generated digits, 20 steps unless told otherwise.
ProgramResult train(Words words, const RunOptions& options = {}) {
  words.insert(words.end(), {"--data", data_folder().string()});
  if (std::find(words.begin(), words.end(), "--steps") == words.end()) {
    words.insert(words.end(), {"--steps", "20"});
  }
  return run_mlp(std::move(words), options);
}

std::string text_of(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// The lines of a log that begin with an event, without what depends on the clock.
Words events(const std::filesystem::path& path, const std::string& event) {
  std::istringstream in(text_of(path));
  Words lines;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("{\"event\":\"" + event + "\"")) {
      lines.push_back(line.substr(0, line.find(",\"samples_per_s\"")));
    }
  }
  return lines;
}

// A wrong command line: exit status 2 and one line on standard error that holds the pieces.
template <class... Pieces>
void expect_usage_error(const Words& words, const Pieces&... pieces) {
  const ProgramResult r = train(words);
  EXPECT_EQ(r.exit_code, 2) << r.err;
  expect_holds(r.err, "--help", pieces...);
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
}

TEST(TrainMlp, PrintsWhatItDoesAndEndsWithASummary) {
  const ProgramResult r = train({"--print-every", "10"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.out.rfind("seed 1, device cpu (2 threads", 0), 0u) << r.out;
  expect_holds(r.out,
               "recipe fp32,fwd=fp32",
               "native",
               "step 10/20",
               "step 20/20",
               "samples/s",
               "0.0s left",
               "done: 20 of 20 steps",
               "accuracy",
               "peak memory",
               "moments");
  EXPECT_EQ(train({"--quiet"}).out.find("step 10/20"), std::string::npos);
}

TEST(TrainMlp, SaysWhatTheDataHolds) {
  const ProgramResult r = train({"--steps", "1"});
  expect_holds(r.out, "256 training and 64 test images of 28x28, 10 classes");
  EXPECT_EQ(r.out.find("note:"), std::string::npos) << r.out;
  const TempFolder folder;
  ImageDataset digits = synthetic_digits(256, 64);
  digits.train.labels[7] = 200;
  write_idx_folder(digits, folder.path());
  const ProgramResult wrong = run_mlp({"--data", folder.path().string(), "--steps", "1"});
  EXPECT_EQ(wrong.exit_code, 0) << wrong.err;
  expect_holds(wrong.out, "201 classes", "note: 190 of the classes have no training image");
}

TEST(TrainMlp, TrainsSeveralRecipesInOneRun) {
  const ProgramResult r = train({"--precision", "bf16", "--precision", "fp8-block,grad=e5m2"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  expect_holds(r.out, "recipe bf16", "recipe fp8-block,fwd=e4m3,grad=e5m2", "emulated (via fp32)");
  const size_t first = r.out.find("done:");
  EXPECT_NE(r.out.find("done:", first + 1), std::string::npos);
}

TEST(TrainMlp, EveryRecipeHasPeaksOfItsOwn) {
  const TempFolder folder;
  const std::string log = (folder / "run.jsonl").string();
  const auto peaks = [&](Words words) {
    words.insert(words.end(), {"--log", log, "--steps", "2"});
    EXPECT_EQ(train(words).exit_code, 0);
    const std::string text = text_of(log);
    const size_t at = text.rfind("\"peak_bytes\"");
    return text.substr(at, text.find('}', at) - at);
  };
  EXPECT_EQ(peaks({"--precision", "fp32", "--precision", "bf16-pure"}),
            peaks({"--precision", "bf16-pure"}));
}

TEST(TrainMlp, LogsOneObjectALine) {
  const TempFolder folder;
  const std::string log = (folder / "run.jsonl").string();
  const ProgramResult r = train({"--log", log, "--eval-every", "10", "--precision", "bf16-pure"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::istringstream in(text_of(log));
  Words names;
  for (std::string line; std::getline(in, line);) {
    names.push_back(line.substr(0, line.find(',')));
  }
  EXPECT_EQ(names.front(), "{\"event\":\"start\"");
  EXPECT_EQ(names.back(), "{\"event\":\"summary\"");
  EXPECT_EQ(events(log, "step").size(), 20u);
  EXPECT_EQ(events(log, "eval").size(), 2u);
  const auto step = parse_flat_json(events(log, "step")[4] + "}");
  Words fields;
  for (const auto& [name, value] : step) {
    fields.push_back(name);
  }
  EXPECT_EQ(fields,
            (Words{"event",
                   "step",
                   "loss",
                   "lr",
                   "grad_norm",
                   "loss_scale",
                   "skipped",
                   "targets",
                   "lost_updates"}));
  EXPECT_EQ(std::get<int64_t>(step[1].second), 5);
  expect_holds(events(log, "start")[0],
               "\"precision\":\"bf16-pure\"",
               "\"recipe_full\"",
               "\"hidden\":\"32\"",
               "\"lr\":0.001");
  expect_holds(text_of(log),
               "\"best_val_loss\"",
               "\"peak_bytes\":{\"weights\":",
               "\"sync_calls\":",
               "\"skipped\":0");
}

TEST(TrainMlp, ResumesToTheSameLog) {
  const TempFolder folder;
  const Words common{
      "--precision", "fp16", "--grad-accum", "2", "--dropout", "0.1", "--eval-every", "5"};
  const auto with = [&](Words words) {
    words.insert(words.end(), common.begin(), common.end());
    return words;
  };
  const std::string whole = (folder / "whole.jsonl").string();
  const std::string part = (folder / "part.jsonl").string();
  const std::string run = (folder / "run.h5").string();
  ASSERT_EQ(train(with({"--log", whole})).exit_code, 0);
  ASSERT_EQ(train(with({"--log", part, "--out", run, "--stop-after", "7"})).exit_code, 0);
  EXPECT_EQ(events(part, "step").size(), 7u);
  EXPECT_TRUE(events(part, "eval").size() == 1u);
  const ProgramResult resumed = run_program(built("train_mlp"),
                                            {"--resume",
                                             run,
                                             "--log",
                                             part,
                                             "--data",
                                             data_folder().string(),
                                             "--device",
                                             "cpu",
                                             "--threads",
                                             "1"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(events(part, "step"), events(whole, "step"));
  EXPECT_EQ(events(part, "eval"), events(whole, "eval"));
}

TEST(TrainMlp, ResumeRefusesWhatContradictsTheFile) {
  const TempFolder folder;
  const std::string run = (folder / "run.h5").string();
  ASSERT_EQ(train({"--out", run, "--stop-after", "3", "--lr", "1e-2"}).exit_code, 0);
  expect_usage_error({"--resume", run, "--lr", "0.02"}, "--lr 0.02", "0.01");
  expect_usage_error({"--resume", run, "--precision", "bf16"}, "--precision bf16", "fp32");
  expect_usage_error({"--resume", run, "--loss-scale", "8"}, "--loss-scale 8", "none");
  expect_usage_error({"--resume", run, "--seed", "2"}, "--seed 2", "1");
  // The same values in another spelling are no contradiction; some flags may always change.
  const ProgramResult r = train({"--resume",
                                 run,
                                 "--lr",
                                 "0.010",
                                 "--precision",
                                 "fp32",
                                 "--steps",
                                 "6",
                                 "--eval-every",
                                 "2",
                                 "--quiet"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  expect_holds(r.out, "done: 6 of 6 steps");
  expect_usage_error({"--resume", run, "--steps", "5"}, "step 5", "step 6");
  const ProgramResult without_data = run_program(built("train_mlp"), {"--resume", run});
  EXPECT_EQ(without_data.exit_code, 2);
  expect_holds(without_data.err, "--data");
  const ProgramResult other_data =
      run_program(built("train_mlp"), {"--resume", run, "--data", "synthetic"});
  EXPECT_EQ(other_data.exit_code, 1);
  expect_holds(other_data.err, "other data");
}

TEST(TrainMlp, NeverReplacesARunUnasked) {
  const TempFolder folder;
  const std::string run = (folder / "run.h5").string();
  ASSERT_EQ(train({"--out", run, "--stop-after", "0"}).exit_code, 0);
  const std::string before = text_of(run);
  const ProgramResult r = train({"--out", run});
  EXPECT_EQ(r.exit_code, 1);
  expect_holds(r.err, "run.h5", "--resume", "--overwrite");
  EXPECT_EQ(text_of(run), before);
  EXPECT_EQ(train({"--out", run, "--overwrite"}).exit_code, 0);
  EXPECT_NE(text_of(run), before);
  const std::string fresh = (folder / "fresh.h5").string();
  EXPECT_EQ(train({"--init", run, "--out", fresh, "--precision", "bf16"}).exit_code, 0);
  expect_usage_error({"--init", run, "--resume", run}, "exclude each other");
}

TEST(TrainMlp, InitLeavesNothingOfTheRandomWeights) {
  // The first amax of delayed scaling is that of the weights loaded, whichever seed's is larger.
  const TempFolder folder;
  for (const auto& [from, to] : {std::pair{"1", "2"}, {"2", "1"}}) {
    const std::string init = (folder / "init.h5").string();
    const std::string run = (folder / "run.h5").string();
    const Words common{"--precision", "fp8-delayed", "--overwrite"};
    const auto with = [&](Words words) {
      words.insert(words.end(), common.begin(), common.end());
      return words;
    };
    ASSERT_EQ(train(with({"--seed", from, "--out", init, "--stop-after", "0"})).exit_code, 0);
    ASSERT_EQ(
        train(with({"--seed", to, "--init", init, "--out", run, "--stop-after", "1"})).exit_code,
        0);
    float amax = 0.0f;
    for (const float w : Hdf5File::open(init).read<float>("/master/layers.0.weight")) {
      amax = std::max(amax, std::fabs(w));
    }
    EXPECT_EQ(Hdf5File::open(run).read<float>("/amax/layers.0/w")[0], amax) << to;
  }
}

TEST(TrainMlp, WritesACheckpointOnCtrlC) {
  const TempFolder folder;
  const std::string run = (folder / "run.h5").string();
  const ProgramResult r =
      train({"--steps", "1000000", "--print-every", "10", "--eval-every", "0", "--out", run},
            {.signal = SIGINT, .signal_when = "step 50/"});
  EXPECT_EQ(r.exit_code, 130) << r.err;
  expect_holds(r.out, "checkpoint at step", "done:");
  EXPECT_EQ(train({"--resume", run, "--steps", "1000000", "--print-every", "10"},
                  {.signal = SIGINT, .signal_when = "/1000000"})
                .exit_code,
            130);
}

TEST(TrainMlp, SaysWhatIsWrongWithTheCommandLine) {
  expect_usage_error({"--lr", "nan"}, "--lr", "nan");
  expect_usage_error({"--lr", "0,1"}, "--lr", "0,1");
  expect_usage_error({"--lr", "-1"}, "--lr", "-1", "at least 0");
  expect_usage_error({"--steps", "0"}, "--steps", "at least 1");
  expect_usage_error({"--seed", "1.5"}, "--seed", "whole number");
  expect_usage_error({"--dropout", "1"}, "--dropout", "below 1");
  expect_usage_error({"--precision", "fp9"}, "--precision", "fp9");
  expect_usage_error({"--precision", "fp8-block,fwd=e9m9"}, "--precision", "e9m9");
  expect_usage_error({"--optimizer", "adam"}, "adamw or sgd");
  expect_usage_error({"--loss-scale", "0"}, "--loss-scale", "0");
  expect_usage_error({"--loss-scale", "-8"}, "--loss-scale");
  expect_usage_error({"--precision", "fp16", "--loss-scale-max", "1"}, "loss scale", "65536");
  expect_usage_error({"--steps", "1", "--epochs", "1"}, "--steps", "--epochs");
  expect_usage_error({"--checkpoint-every", "5"}, "--checkpoint-every", "--out");
  expect_usage_error({"--stop-after", "5"}, "--stop-after", "--out");
  expect_usage_error({"--recompute"}, "--recompute");
  expect_usage_error({"--graph", "on"}, "--graph", "CPU");
  for (const char* device : {"gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999"}) {
    expect_usage_error({"--device", device}, "--device", device);
  }
  expect_usage_error({"--lr", "1", "--lr", "2"}, "--lr", "twice");
  expect_usage_error({"--out", "--quiet"}, "--out needs a value");
  const ProgramResult r = run_program(built("train_mlp"), {"--hidden", "0"});
  EXPECT_EQ(r.exit_code, 2);
  expect_holds(r.err, "--hidden", "'0'");
  EXPECT_EQ(run_program(built("train_mlp"), {"--hidden", "256,,256"}).exit_code, 2);
  EXPECT_EQ(run_program(built("train_mlp"), {"--hidden", "256,"}).exit_code, 2);
  for (const char* huge : {"16777217", "99999999999999999999"}) {
    expect_holds(run_program(built("train_mlp"), {"--hidden", huge}).err, "more than 16777216");
  }
  expect_usage_error({"--lr", "1e300"}, "--lr", "FP32");
  expect_usage_error({"--gemm", "wgmma"}, "--gemm", "wgmma", "eigen and emulated");
  const ProgramResult no_epochs = run_mlp({"--data", data_folder().string(), "--epochs", "0"});
  EXPECT_EQ(no_epochs.exit_code, 2);
  expect_holds(no_epochs.err, "--epochs", "above 0");
}

TEST(TrainMlp, KeepNamesLayersThatAreThere) {
  const ProgramResult wrong = train({"--precision", "fp8-block,keep=layer.0"});
  EXPECT_EQ(wrong.exit_code, 2);
  expect_holds(wrong.err, "keep=layer.0", "layers.0, layers.1");
  EXPECT_EQ(train({"--precision", "fp8-block,keep=head+layers.0"}).exit_code, 0);
}

TEST(TrainMlp, AWrongLaterRecipeStopsTheFirst) {
  for (const Words& words :
       {Words{"--precision", "fp32", "--precision", "fp8-block,keep=layer.0"},
        Words{"--precision", "fp32", "--precision", "fp16", "--loss-scale-max", "1"}}) {
    const ProgramResult r = train(words);
    EXPECT_EQ(r.exit_code, 2) << r.err;
    EXPECT_EQ(r.out.find("done:"), std::string::npos) << r.out;
  }
}

TEST(Cases, FC108_LeftoverWordsAreAnError) {
  expect_usage_error({"--quiet", "false"}, "false");
  expect_usage_error({"--quiet=no"}, "--quiet", "no");
  EXPECT_EQ(train({"--quiet=off", "--steps", "1"}).exit_code, 0);
}

TEST(Cases, FC110_UnknownOptionsAreNamed) {
  expect_usage_error({"--stepz", "1"}, "--stepz", "did you mean --steps?");
  expect_usage_error({"--step", "1"}, "--step", "did you mean --steps?");
  const ProgramResult missing = run_program(built("train_mlp"), {"--steps"});
  EXPECT_EQ(missing.exit_code, 2);
  expect_holds(missing.err, "steps", "--help");
  const ProgramResult help = run_program(built("train_mlp"), {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  expect_holds(help.out, "--precision", "--resume", "--hidden");
  const ProgramResult recipes = run_program(built("train_mlp"), {"--precision", "help"});
  EXPECT_EQ(recipes.exit_code, 0);
  expect_holds(recipes.out, "fp8-block", "loss_scale");
}

TEST(TrainMlp, SaysWhatIsWrongWithTheMachineOrTheFiles) {
  const ProgramResult data = run_mlp({"--data", "/no/such/folder"});
  EXPECT_EQ(data.exit_code, 1);
  expect_holds(data.err, "/no/such/folder");
  const ProgramResult out = train({"--out", "/no/such/folder/run.h5"});
  EXPECT_EQ(out.exit_code, 1);
  expect_holds(out.err, "/no/such/folder/run.h5");
  const ProgramResult log = train({"--log", "/dev/full"});
  EXPECT_EQ(log.exit_code, 1);
  expect_holds(log.err, "/dev/full", "No space left");
  const ProgramResult resume = train({"--resume", "/no/such/run.h5"});
  EXPECT_EQ(resume.exit_code, 1);
  const ProgramResult kernel = train({"--gemm", "emulated"});
  EXPECT_EQ(kernel.exit_code, 1);
  expect_holds(kernel.err, "layers.0", "emulated");
  const ProgramResult cuda = train({"--device", "cuda:1000"});
  EXPECT_EQ(cuda.exit_code, 1);
  expect_holds(cuda.err, "cuda:1000", "--device cpu");
  const ProgramResult threads = train({"--device", "cuda:1000", "--threads", "2"});
  EXPECT_EQ(threads.exit_code, 2);  // wrong with or without that GPU
  expect_holds(threads.err, "--threads", "cuda:1000");
}

TEST(TrainMlp, FailedStartsHarmNothing) {
  const TempFolder folder;
  const std::filesystem::path log = folder.write("run.jsonl", "an earlier run");
  EXPECT_EQ(run_mlp({"--data", "/no/such/folder", "--log", log.string()}).exit_code, 1);
  EXPECT_EQ(text_of(log), "an earlier run");
  for (const Words& words : {Words{"--out", folder.path().string(), "--overwrite"},
                             Words{"--resume", folder.path().string()}}) {
    const ProgramResult r = train(words);
    EXPECT_EQ(r.exit_code, 1);
    expect_holds(r.err, "not a regular file");
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path().string() + ".lock"));
  const ProgramResult missing = train({"--resume", (folder / "missing.h5").string()});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "missing.h5.lock"));
}

TEST(TrainMlp, AFullDiskIsNeverSilent) {
  const ProgramResult dump = train({"--dump-batches", "/dev/full"});
  EXPECT_EQ(dump.exit_code, 1);
  expect_holds(dump.err, "/dev/full", "No space left");
  const ProgramResult out =
      run_program("/bin/sh", {"-c", "exec \"$0\" --help > /dev/full", built("train_mlp")});
  EXPECT_EQ(out.exit_code, 1);
  expect_holds(out.err, "standard output");
}

TEST(Cases, FC85_FullDiskLeavesTheOldFile) {
  const TempFolder folder;
  const std::string mounted = folder.path().string();
  if (mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=300k") != 0) {
    GTEST_SKIP() << "cannot mount a small file system here";
  }
  const std::string run = mounted + "/run.h5";
  const ProgramResult small = train({"--out", run, "--optimizer", "sgd", "--stop-after", "1"});
  const std::string before = small.exit_code == 0 ? text_of(run) : "";
  const ProgramResult r = train({"--resume", run});
  const std::string after = small.exit_code == 0 ? text_of(run) : "";
  const bool left_over = std::filesystem::exists(run + ".tmp");
  umount(mounted.c_str());
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_EQ(r.exit_code, 1);
  expect_holds(r.err, "run.h5", "No space left");
  EXPECT_EQ(after, before);
  EXPECT_FALSE(left_over);
}

TEST(Cases, FC103_SecondRunOnTheSameFileIsRefused) {
  const TempFolder folder;
  const std::filesystem::path run = folder / "run.h5";
  ASSERT_EQ(train({"--out", run.string(), "--stop-after", "1"}).exit_code, 0);
  const std::string before = text_of(run);
  const RunLock held(run);
  for (const Words& words :
       {Words{"--out", run.string(), "--overwrite"}, Words{"--resume", run.string()}}) {
    const ProgramResult r = train(words);
    EXPECT_EQ(r.exit_code, 1);
    expect_holds(r.err, "run.h5.lock");
  }
  EXPECT_EQ(text_of(run), before);
}

TEST(Cases, FC113_SkipsAreToldBriefly) {
  const ProgramResult r =
      train({"--precision", "fp16", "--loss-scale-init", "16777216", "--print-every", "10"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  expect_holds(r.out,
               "step 1 skipped: a gradient is not finite; loss scale 16777216 -> 8388608",
               "step 2 skipped");
  // One line a skip, the number of skips so far in the line of a step, and their sum at the end.
  int64_t skips = 0;
  for (size_t at = r.out.find(" skipped: "); at != std::string::npos; ++skips) {
    at = r.out.find(" skipped: ", at + 1);
  }
  expect_holds(r.out, concat("  skipped ", skips, "  "), concat(", ", skips, " skipped"));
  EXPECT_LT(skips, 10);
  EXPECT_EQ(r.out.find("warning"), std::string::npos);
}

TEST(Cases, FC114_SmallFp8LayersGetANote) {
  const ProgramResult r = train({"--precision", "fp8-block"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const size_t at = r.out.find("note: layers.0 is 32 x 784");
  EXPECT_NE(at, std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("note:", at + 1), std::string::npos);
  const ProgramResult wide = train({"--precision", "bf16"});
  EXPECT_EQ(wide.out.find("note:"), std::string::npos);
  // Pointless, but right.
  const auto loss = [](const ProgramResult& run) {
    return std::stod(run.out.substr(run.out.rfind("val_loss ") + 9));
  };
  EXPECT_NEAR(loss(r), loss(wide), 0.05 * loss(wide));
}

TEST(TrainMlp, EndsWhenNoLossScaleHelps) {
  const ProgramResult r = train({"--precision", "fp16", "--loss-scale", "1e30", "--steps", "1000"});
  EXPECT_EQ(r.exit_code, 1);
  expect_holds(r.err, "iteration 50", "fixed loss scale", "layers.");
  expect_holds(r.out, "warning: 10 steps in a row were skipped");
}

TEST(TrainMlp, DumpsTheRowsOfEveryBatch) {
  const TempFolder folder;
  const std::string dump = (folder / "rows.jsonl").string();
  ASSERT_EQ(train({"--dump-batches", dump, "--steps", "3", "--grad-accum", "2"}).exit_code, 0);
  const std::string text = text_of(dump);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  expect_holds(text, "{\"step\":3,\"micro_batch\":1,\"rows\":[");
  const std::string again = (folder / "again.jsonl").string();
  ASSERT_EQ(train({"--dump-batches",
                   again,
                   "--steps",
                   "3",
                   "--grad-accum",
                   "2",
                   "--precision",
                   "fp8-block"})
                .exit_code,
            0);
  EXPECT_EQ(text_of(again), text);
  const std::string twice = (folder / "twice.jsonl").string();
  ASSERT_EQ(train({"--dump-batches",
                   twice,
                   "--steps",
                   "3",
                   "--grad-accum",
                   "2",
                   "--precision",
                   "fp32",
                   "--precision",
                   "bf16"})
                .exit_code,
            0);
  EXPECT_EQ(text_of(twice), text + text);
}

}  // namespace
}  // namespace halftone::testing
