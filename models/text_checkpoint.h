// What a checkpoint of a text model says besides its weights: the model's shape, and what its
// tokens stand for. Both are fields of the config; the shape's are train_gpt's flags.
#pragma once

#include "data/text.h"
#include "models/checkpoint.h"
#include "models/gpt.h"
#include "models/json.h"

namespace halftone {

/// Adds `vocab` (the size), `unit` (chars, bytes or ids) and, for chars, `characters` (all of them,
/// in the order of their tokens).
void store_vocabulary(const Vocabulary& vocabulary, JsonObject& config);

/// Throws FileError where the checkpoint holds none.
Vocabulary stored_vocabulary(const Checkpoint& checkpoint);

/// The model in a checkpoint, without dropout. Throws FileError where it holds no decoder.
GptOptions stored_gpt_options(const Checkpoint& checkpoint);

/// Throws FileError naming what the vocabulary of the data has that the checkpoint's has not, or
/// lacks.
void check_same_vocabulary(const Checkpoint& checkpoint, const Vocabulary& of_data);

}  // namespace halftone
