// Trains a multilayer perceptron on images (MNIST unless told otherwise) under one recipe, or under
// several, one after the other. See --help, or the README for the recipes.
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "data/dataset.h"
#include "examples/session.h"
#include "models/image_task.h"

namespace halftone {
namespace {

constexpr int64_t kMostUnits = 1 << 24;  // of a hidden layer

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    HALFTONE_CHECK(error != std::errc::result_out_of_range && size <= kMostUnits,
                   "'",
                   text,
                   "' has a layer of more than ",
                   kMostUnits,
                   " units");
    HALFTONE_CHECK(error == std::errc() && size >= 1,
                   "'",
                   text,
                   "' is not a list of layer sizes of at least 1, like 256,256");
    sizes.push_back(size);
    if (next == end) {
      return sizes;
    }
    HALFTONE_CHECK(*next == ',', "'", text, "' is not a list of layer sizes, like 256,256");
    at = next + 1;
  }
}

void add_flags(Flags& flags) {
  flags.add({.name = "data",
             .default_value = "mnist",
             .help = "mnist, synthetic, a folder with the four IDX files, or an .h5",
             .scope = Flag::Scope::process});
  flags.add({.name = "hidden",
             .default_value = "256,256",
             .help = "units of the hidden layers",
             .canonical = [](const std::string& text) {
               std::string list;
               for (const int64_t size : parse_sizes(text)) {
                 list += concat(list.empty() ? "" : ",", size);
               }
               return list;
             }});
  add_common_flags(flags, {.epochs = "5"});
}

// A wrong label in a file of one's own makes classes that nothing belongs to.
void print_data(const ImageDataset& data) {
  std::vector<bool> has_image(static_cast<size_t>(data.num_classes));
  for (const uint8_t label : data.train.labels) {
    has_image[label] = true;
  }
  std::printf("data %s: %lld training and %lld test images of %lldx%lld, %lld classes\n",
              data.source.c_str(),
              static_cast<long long>(data.train.count),
              static_cast<long long>(data.test.count),
              static_cast<long long>(data.train.height),
              static_cast<long long>(data.train.width),
              static_cast<long long>(data.num_classes));
  const auto empty = std::count(has_image.begin(), has_image.end(), false);
  if (empty > 0) {
    std::printf("note: %lld of the classes have no training image; is there a wrong label?\n",
                static_cast<long long>(empty));
  }
}

RunEnd train(Session& session,
             const Flags& flags,
             const Recipe& recipe,
             const ImageDataset& data,
             const JsonObject& facts) {
  const int64_t batch = flags.integer("batch");
  const int64_t grad_accum = flags.integer("grad-accum");
  const int64_t per_epoch = batches_per_epoch(data.train.count, batch);
  const LinearContext context =
      session.begin(recipe,
                    {.steps = total_steps(flags, static_cast<double>(per_epoch)),
                     .nominal_targets = static_cast<double>(batch * grad_accum),
                     .eval_every = std::max<int64_t>(1, per_epoch / grad_accum),
                     .print_every = 50});
  print_data(data);
  Mlp model({.inputs = data.train.height * data.train.width,
             .hidden = parse_sizes(flags.text("hidden")),
             .outputs = data.num_classes,
             .dropout = static_cast<float>(flags.real("dropout"))},
            context);
  ImageTask task(model, data, {batch, grad_accum, context.random});
  return session.train(task, facts);
}

int run(Flags& flags) {
  Session session(flags);
  const std::string spec = session.data_spec();
  const ImageDataset data = load_image_dataset(spec);
  const JsonObject facts = session.data_facts(spec,
                                              {std::as_bytes(std::span(data.train.pixels)),
                                               std::as_bytes(std::span(data.train.labels)),
                                               std::as_bytes(std::span(data.test.pixels)),
                                               std::as_bytes(std::span(data.test.labels))});
  return session.train_all(
      [&](const Recipe& recipe) { return train(session, flags, recipe, data, facts); });
}

}  // namespace
}  // namespace halftone

int main(int argc, char** argv) {
  halftone::Flags flags("train_mlp", "trains a multilayer perceptron on images");
  halftone::add_flags(flags);
  return halftone::run_main(flags, argc, argv, [&] { return halftone::run(flags); });
}
