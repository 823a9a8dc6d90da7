#include "data/hdf5_checksum.h"

#include <algorithm>
#include <variant>

#include "core/check.h"
#include "data/files.h"
#include "data/sha256.h"

namespace halftone {
namespace {

struct Entry {
  std::string name;  // of the dataset, or object@attribute
  std::string object;
  std::string attribute;  // empty for a dataset
};

std::vector<Entry> sorted_entries(const Hdf5File& file) {
  std::vector<Entry> entries;
  for (const std::string& name : file.datasets()) {
    if (name != kChecksumName) {
      entries.push_back({name, name, ""});
    }
  }
  for (const std::string& object : file.objects()) {
    for (const std::string& attribute : file.attributes(object)) {
      entries.push_back({object + "@" + attribute, object, attribute});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.name < b.name;
  });
  return entries;
}

void feed(Sha256& hash,
          const std::string& name,
          const std::string& kind,
          const void* data,
          size_t num_bytes) {
  hash.update(name.c_str(), name.size() + 1);  // with the terminating zero
  hash.update(kind.c_str(), kind.size() + 1);
  hash.update(data, num_bytes);
}

void feed_dataset(Sha256& hash,
                  const Hdf5File& file,
                  const std::string& name,
                  std::vector<uint8_t>& scratch) {
  const DatasetInfo info = file.info(name);
  const std::string kind = concat(name_of(info.type), " ", to_string(info.dims));
  scratch.resize(info.num_bytes());
  file.read_raw(name, info.type, scratch.data(), scratch.size());
  feed(hash, name, kind, scratch.data(), scratch.size());
}

void feed_attribute(Sha256& hash, const std::string& name, const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    feed(hash, name, "text", text->data(), text->size());
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    feed(hash, name, "i64", integer, sizeof *integer);
  } else {
    feed(hash, name, "f64", &std::get<double>(value), sizeof(double));
  }
}

Sha256::Digest digest_of(const Hdf5File& file) {
  Sha256 hash;
  std::vector<uint8_t> scratch;
  for (const Entry& entry : sorted_entries(file)) {
    if (entry.attribute.empty()) {
      feed_dataset(hash, file, entry.name, scratch);
    } else {
      feed_attribute(hash, entry.name, file.attribute(entry.object, entry.attribute));
    }
  }
  return hash.digest();
}

}  // namespace

std::string compute_checksum(const Hdf5File& file) { return to_hex(digest_of(file)); }

void write_checksum(Hdf5File& file) {
  const Sha256::Digest digest = digest_of(file);
  file.write<uint8_t>(kChecksumName, {int64_t(digest.size())}, digest);
}

void verify_checksum(const Hdf5File& file) {
  if (!file.has(kChecksumName)) {
    throw_file_error(file.path(),
                     "has no ",
                     kChecksumName,
                     "; it was not written by Halftone, or not to the end");
  }
  const std::vector<uint8_t> stored = file.read<uint8_t>(kChecksumName);
  const Sha256::Digest found = digest_of(file);
  if (!std::equal(stored.begin(), stored.end(), found.begin(), found.end())) {
    throw_file_error(file.path(),
                     "is damaged: its content has SHA-256 ",
                     to_hex(found),
                     " and ",
                     kChecksumName,
                     " says otherwise; use an older copy");
  }
}

}  // namespace halftone
