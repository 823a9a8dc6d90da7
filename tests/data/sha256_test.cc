#include "data/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace halftone {
namespace {

std::string hex_of(std::string_view text) { return sha256_hex(text.data(), text.size()); }

// The examples of FIPS 180-4 (SHA-256 example vectors) and the empty message.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, InstructionsAndPiecesGiveThePortableDigest) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 300; ++size) {
    std::vector<uint8_t> bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return uint8_t(random()); });
    Sha256 portable(Sha256::Backend::portable);
    portable.update(bytes.data(), size);
    Sha256 pieces;
    for (size_t done = 0; done < size;) {
      const size_t piece = std::min<size_t>(size - done, random() % 130);
      pieces.update(bytes.data() + done, piece);
      done += piece;
    }
    EXPECT_EQ(to_hex(portable.digest()), to_hex(pieces.digest())) << size << " bytes";
  }
}

}  // namespace
}  // namespace halftone
