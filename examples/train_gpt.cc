// Trains a GPT-2-style decoder on text, characters or bytes, or on tokens made elsewhere, under one
// recipe or under several, one after the other. --size sets shape and schedule to nanoGPT's, and
// any other flag overrides it. See --help, or the README for the recipes.
#include <cstdio>

#include "data/dataset.h"
#include "examples/session.h"
#include "models/text_checkpoint.h"
#include "models/text_task.h"

namespace halftone {
namespace {

// What a size implies, besides the shape: the flag and its value.
using Preset = std::vector<std::pair<const char*, const char*>>;

const Preset kChar{{"layers", "6"},
                   {"heads", "6"},
                   {"width", "384"},
                   {"context", "256"},
                   {"batch", "64"},
                   {"grad-accum", "1"},
                   {"dropout", "0.2"},
                   {"steps", "5000"},
                   {"lr", "0.001"},
                   {"min-lr", "0.0001"},
                   {"warmup", "100"},
                   {"beta2", "0.99"}};
const Preset kGpt2{{"layers", "12"},
                   {"heads", "12"},
                   {"width", "768"},
                   {"context", "1024"},
                   {"batch", "12"},
                   {"grad-accum", "40"},
                   {"dropout", "0"},
                   {"steps", "600000"},
                   {"lr", "0.0006"},
                   {"min-lr", "0.00006"},
                   {"warmup", "2000"},
                   {"beta2", "0.95"}};

void add_flags(Flags& flags) {
  flags.add({.name = "data",
             .default_value = "tinyshakespeare",
             .help = "tinyshakespeare, synthetic, a text file, a token file, .npy or .h5",
             .scope = Flag::Scope::process});
  flags.add({.name = "size",
             .kind = Flag::Kind::choice,
             .default_value = "char",
             .help = "shape and schedule, unless given",
             .choices = {"char", "gpt2"}});
  for (const auto& [name, help] : {std::pair{"layers", "transformer blocks"},
                                   {"heads", "attention heads of a block"},
                                   {"width", "elements of the residual stream"},
                                   {"context", "tokens that the model sees at once"}}) {
    flags.add({.name = name, .kind = Flag::Kind::integer, .help = help, .low = 1, .high = 1e6});
  }
  flags.add({.name = "bias",
             .kind = Flag::Kind::choice,
             .default_value = "off",
             .help = "biases in linear layers and norms",
             .choices = {"on", "off"}});
  flags.add({.name = "text",
             .kind = Flag::Kind::choice,
             .default_value = "chars",
             .help = "what a token of a text file is",
             .choices = {"chars", "bytes"}});
  flags.add({.name = "normalize",
             .kind = Flag::Kind::present,
             .help = "drop a byte order mark and carriage returns from a text file"});
  flags.add({.name = "recompute",
             .kind = Flag::Kind::present,
             .help = "recompute activations instead of keeping them",
             .scope = Flag::Scope::process});
  add_common_flags(flags,
                   {.min_lr = "0.0001",
                    .warmup = "100",
                    .beta2 = "0.99",
                    .weight_decay = "0.1",
                    .clip = "1",
                    .dropout = "0.2",
                    .batch = "64"});
}

// Values of --size, where neither the command line nor the checkpoint of --resume has one.
void apply_size(Flags& flags) {
  if (flags.has("resume")) {
    return;
  }
  for (const auto& [name, value] : flags.text("size") == "gpt2" ? kGpt2 : kChar) {
    if (!flags.given(name)) {
      flags.set(name, std::string(value));
    }
  }
}

void print_data(const TokenDataset& data) {
  for (const std::string& note : data.notes) {
    std::printf("note: %s\n", note.c_str());
  }
  std::printf("data %s: %zu training and %zu validation tokens, vocabulary of %lld\n",
              data.source.c_str(),
              data.train.size(),
              data.val.size(),
              static_cast<long long>(data.vocabulary.size()));
}

RunEnd train(Session& session,
             const Flags& flags,
             const Recipe& recipe,
             const TokenDataset& data,
             const JsonObject& facts) {
  const int64_t batch = flags.integer("batch");
  const GptOptions options{.vocab = data.vocabulary.size(),
                           .context = flags.integer("context"),
                           .layers = flags.integer("layers"),
                           .heads = flags.integer("heads"),
                           .width = flags.integer("width"),
                           .dropout = static_cast<float>(flags.real("dropout")),
                           .has_bias = flags.is_on("bias"),
                           .recompute = flags.is_on("recompute")};
  // An epoch's batches hold as many tokens as there are; windows are drawn, not dealt.
  const double per_epoch =
      static_cast<double>(data.train.size()) / static_cast<double>(batch * options.context);
  const int64_t targets = batch * flags.integer("grad-accum") * options.context;
  const LinearContext context = session.begin(recipe,
                                              {.steps = total_steps(flags, per_epoch),
                                               .nominal_targets = static_cast<double>(targets),
                                               .eval_every = 250,
                                               .print_every = 10});
  print_data(data);
  Gpt model(options, context);
  TextTask task(model, data, {batch, flags.integer("grad-accum"), context.random});
  return session.train(task, facts);
}

int run(Flags& flags) {
  apply_size(flags);
  Session session(flags);
  if (flags.integer("width") % flags.integer("heads") != 0) {
    throw_usage("--heads ", flags.text("heads"), " do not divide --width ", flags.text("width"));
  }
  const std::string spec = session.data_spec();
  const TokenDataset data = load_token_dataset(
      spec, {.unit = parse_token_unit(flags.text("text")), .normalize = flags.is_on("normalize")});
  if (session.resumed()) {
    check_same_vocabulary(*session.resumed(), data.vocabulary);
  }
  if (flags.has("init")) {
    check_same_vocabulary(Checkpoint(flags.text("init")), data.vocabulary);
  }
  JsonObject facts = session.data_facts(
      spec, {std::as_bytes(std::span(data.train)), std::as_bytes(std::span(data.val))});
  store_vocabulary(data.vocabulary, facts);
  return session.train_all(
      [&](const Recipe& recipe) { return train(session, flags, recipe, data, facts); });
}

}  // namespace
}  // namespace halftone

int main(int argc, char** argv) {
  halftone::Flags flags("train_gpt", "trains a GPT-2-style decoder on text");
  halftone::add_flags(flags);
  return halftone::run_main(flags, argc, argv, [&] { return halftone::run(flags); });
}
