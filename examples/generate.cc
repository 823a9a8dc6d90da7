// Writes text with a model that train_gpt made: continues a prompt, token by token, and shows each
// character as soon as it is whole. The same checkpoint, prompt and seed give the same text.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "data/utf8_stream.h"
#include "examples/common_flags.h"
#include "examples/report.h"
#include "models/interrupt.h"
#include "models/sampler.h"
#include "models/text_checkpoint.h"

namespace halftone {
namespace {

using Kind = Flag::Kind;

void add_flags(Flags& flags) {
  flags.add({.name = "from", .help = "the checkpoint of train_gpt (RUN.h5)"});
  flags.add({.name = "prompt", .help = "text to go on from (a line feed)"});
  flags.add({.name = "tokens",
             .kind = Kind::integer,
             .default_value = "500",
             .help = "tokens to write",
             .low = 0,
             .high = 1e9});
  flags.add({.name = "temperature",
             .kind = Kind::real,
             .default_value = "0.8",
             .help = "divides the logits; 0 always takes the most likely token",
             .low = 0.0,
             .high = 1e6});
  flags.add({.name = "top-k",
             .kind = Kind::integer,
             .default_value = "200",
             .help = "choose among so many of the most likely tokens; 0: among all",
             .low = 0,
             .high = 1e9});
  flags.add({.name = "seed",
             .kind = Kind::integer,
             .default_value = "1",
             .help = "of the draws",
             .low = 0,
             .high = 9e18});
  flags.add({.name = "device", .help = "auto, cpu, cuda or cuda:N (auto)"});
  flags.add({.name = "threads",
             .kind = Kind::integer,
             .help = "CPU threads (all)",
             .low = 1,
             .high = 1024});
  flags.add({.name = "quiet", .kind = Kind::present, .help = "print the text alone"});
}

std::vector<int32_t> prompt_tokens(const Flags& flags, const Vocabulary& vocabulary) {
  if (flags.has("prompt")) {
    return vocabulary.encode(flags.text("prompt"));
  }
  const bool has_line_feed =
      vocabulary.unit() != TokenUnit::ids &&
      std::count(
          vocabulary.code_points().begin(), vocabulary.code_points().end(), uint32_t{'\n'}) == 1;
  return has_line_feed ? vocabulary.encode("\n") : std::vector<int32_t>{0};
}

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Streams `count` tokens, or as many as come before Ctrl-C.
void write_text(Sampler& sampler,
                const Vocabulary& vocabulary,
                int64_t count,
                const InterruptGuard& interrupt) {
  Utf8Stream stream;
  for (int64_t i = 0; i < count && !interrupt.requested(); ++i) {
    const int32_t token = sampler.next();
    show(stream.push(vocabulary.decode({&token, 1})));
  }
  show(stream.finish() + "\n");
}

int run(const Flags& flags) {
  if (!flags.has("from")) {
    throw_usage("--from is needed: the checkpoint of a train_gpt run");
  }
  const ChosenDevice device = choose_device(flags);
  const auto seed = static_cast<uint64_t>(flags.integer("seed"));
  const Checkpoint checkpoint(flags.text("from"));
  const Vocabulary vocabulary = stored_vocabulary(checkpoint);
  const std::vector<int32_t> prompt = prompt_tokens(flags, vocabulary);
  const bool quiet = flags.is_on("quiet");
  const InterruptGuard interrupt;
  if (!quiet) {
    print_first_lines(seed, device.device, device.note, checkpoint.recipe());
    std::printf("model of iteration %lld, vocabulary of %lld\n\n",
                static_cast<long long>(checkpoint.iteration()),
                static_cast<long long>(vocabulary.size()));
  }
  Gpt model(stored_gpt_options(checkpoint),
            {checkpoint.recipe(),
             {.seed = seed, .counters = to_device(Tensor::zeros({2}, DType::i64), device.device)},
             "",
             device.device});
  checkpoint.load_parameters(model.parameters());
  for (LinearLayer* layer : model.linear_layers()) {
    layer->refresh();
  }
  Sampler sampler(
      model,
      prompt,
      {.temperature = flags.real("temperature"), .top_k = flags.integer("top-k"), .seed = seed});
  show(vocabulary.decode(prompt));
  const auto start = std::chrono::steady_clock::now();
  const int64_t count = flags.integer("tokens");
  write_text(sampler, vocabulary, count, interrupt);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (interrupt.requested()) {
    return 130;
  }
  if (!quiet) {
    std::printf("\ndone: %lld tokens in %.1fs, %.1f tokens/s\n",
                static_cast<long long>(count),
                seconds,
                seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0);
  }
  return 0;
}

}  // namespace
}  // namespace halftone

int main(int argc, char** argv) {
  halftone::Flags flags("generate", "writes text with a model of train_gpt");
  halftone::add_flags(flags);
  return halftone::run_main(flags, argc, argv, [&] { return halftone::run(flags); });
}
