#include "base/sha256.h"

#include <gtest/gtest.h>

namespace godwit {
namespace {

// The examples of FIPS 180-4.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths around the place where the padding needs a block of its own differ from one another.
TEST(Sha256, EveryLengthAroundABlockIsItsOwn) {
  std::string last;
  for (size_t n = 50; n <= 70; ++n) {
    const std::string digest = hex(sha256(std::string(n, 'x')));
    EXPECT_NE(digest, last);
    last = digest;
  }
}

}  // namespace
}  // namespace godwit
