#include "models/text_checkpoint.h"

#include <algorithm>

#include "data/files.h"

namespace halftone {
namespace {

int64_t stored_integer(const Checkpoint& checkpoint, std::string_view key) {
  const Checkpoint::Fields& fields = checkpoint.config();
  const auto found = std::find_if(
      fields.begin(), fields.end(), [&](const auto& field) { return field.first == key; });
  if (found == fields.end() || !std::holds_alternative<int64_t>(found->second)) {
    throw_file_error(checkpoint.path(), "is no checkpoint of train_gpt: its config lacks ", key);
  }
  return std::get<int64_t>(found->second);
}

}  // namespace

void store_vocabulary(const Vocabulary& vocabulary, JsonObject& config) {
  config.add("vocab", vocabulary.size()).add("unit", name_of(vocabulary.unit()));
  if (vocabulary.unit() == TokenUnit::chars) {
    std::string characters;
    for (const uint32_t code_point : vocabulary.code_points()) {
      append_utf8(code_point, characters);
    }
    config.add("characters", std::string_view(characters));
  }
}

Vocabulary stored_vocabulary(const Checkpoint& checkpoint) {
  const int64_t size = stored_integer(checkpoint, "vocab");
  const TokenUnit unit = parse_token_unit(checkpoint.config_text("unit"));
  const Vocabulary vocabulary = unit == TokenUnit::bytes ? Vocabulary::bytes()
                                : unit == TokenUnit::ids
                                    ? Vocabulary::ids(size)
                                    : Vocabulary::of_text(decode_utf8(
                                          checkpoint.config_text("characters"), checkpoint.path()));
  if (vocabulary.size() != size) {
    throw_file_error(checkpoint.path(),
                     "says that its vocabulary has ",
                     size,
                     " tokens, and names ",
                     vocabulary.size());
  }
  return vocabulary;
}

GptOptions stored_gpt_options(const Checkpoint& checkpoint) {
  return {.vocab = stored_integer(checkpoint, "vocab"),
          .context = stored_integer(checkpoint, "context"),
          .layers = stored_integer(checkpoint, "layers"),
          .heads = stored_integer(checkpoint, "heads"),
          .width = stored_integer(checkpoint, "width"),
          .has_bias = checkpoint.config_text("bias") == "on"};
}

void check_same_vocabulary(const Checkpoint& checkpoint, const Vocabulary& of_data) {
  const std::string difference = stored_vocabulary(checkpoint).difference(of_data);
  if (!difference.empty()) {
    throw_file_error(checkpoint.path(),
                     "has another vocabulary than the data: ",
                     difference,
                     "; use the text it was trained on, or see --normalize");
  }
}

}  // namespace halftone
