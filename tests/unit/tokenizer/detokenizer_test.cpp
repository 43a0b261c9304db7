#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include "sample.h"

namespace godwit::tokenizer {
namespace {

// Byte tokens only: ids are bytes, so every split of a text is one push a byte.
std::shared_ptr<const Tokenizer> bytes_only() {
  return Sample{.added = {{"<s>", true}, {"<t>", false}}}.load();
}

std::string stream(Detokenizer& detokenizer, std::string_view bytes) {
  std::string text;
  for (char c : bytes) {
    std::string now = detokenizer.push(static_cast<unsigned char>(c));
    EXPECT_TRUE(is_utf8(now));
    text += now;
  }
  return text + detokenizer.flush();
}

TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  Detokenizer d(bytes_only());
  EXPECT_EQ(d.push(0xF0), "");
  EXPECT_EQ(d.push(0x9F), "");
  EXPECT_EQ(d.pending(), 2u);
  EXPECT_EQ(d.push(0x98), "");
  EXPECT_EQ(d.push(0x80), "😀");
  EXPECT_EQ(d.pending(), 0u);
  EXPECT_EQ(d.push('a'), "a");
  EXPECT_EQ(d.flush(), "");
}

TEST(Detokenizer, EverySplitOfMultiByteCharacters) {
  std::string text = "aé東😀\u0301𐐀z";
  Sample sample;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    for (size_t end = cut + 1; end <= text.size(); ++end) {
      sample.extra_tokens = {text.substr(0, cut), text.substr(cut, end - cut)};
      if (sample.extra_tokens[0].size() == 1 || sample.extra_tokens[1].size() == 1) continue;
      auto tokenizer = sample.load();
      ASSERT_TRUE(tokenizer);
      Detokenizer d(tokenizer);
      std::string out = d.push(256);
      out += d.push(257);
      for (char c : text.substr(end)) out += d.push(static_cast<unsigned char>(c));
      EXPECT_EQ(out, text);
      EXPECT_EQ(d.flush(), "");
    }
  }
}

TEST(Detokenizer, MalformedBytesBecomeOneReplacementEach) {
  struct Case {
    std::string bytes, text;
  };
  const std::string r(kReplacement);
  const Case cases[] = {
      {"\x80", r},
      {"a\xFF"
       "b",
       "a" + r + "b"},
      {"\xC0\xAF", r + r},                  // overlong
      {"\xE0\x80\x80", r + r + r},          // overlong
      {"\xED\xA0\x80", r + r + r},          // surrogate
      {"\xF4\x90\x80\x80", r + r + r + r},  // past U+10FFFF
      {"\xF0\x9F\x98"
       "a",
       r + "a"},                          // three bytes of one character
      {"\xE2\x82\xE2\x82\xAC", r + "€"},  // cut short by the next lead byte
      {"\xF0\x9F\x98", r},                // unfinished at the end
      {"\xEF\xBF\xBD", r},                // U+FFFD itself
      {"\xC3\xC3\xA9", r + "é"},
  };
  for (const Case& c : cases) {
    Detokenizer d(bytes_only());
    EXPECT_EQ(stream(d, c.bytes), c.text);
    EXPECT_EQ(replace_malformed(c.bytes), c.text);
  }
}

TEST(Detokenizer, SpecialAndUnknownIds) {
  auto tokenizer = bytes_only();
  Detokenizer skipping(tokenizer, true), keeping(tokenizer, false);
  EXPECT_EQ(skipping.push(256), "");
  EXPECT_EQ(keeping.push(256), "<s>");
  EXPECT_EQ(skipping.push(257), "<t>");  // added but not special
  for (int32_t id : {258, -1, INT32_MAX, INT32_MIN}) EXPECT_EQ(keeping.push(id), "");
  EXPECT_EQ(skipping.push(0xC3), "");
  EXPECT_EQ(skipping.push(256), "");  // a skipped id does not cut a character
  EXPECT_EQ(skipping.push(0xA9), "é");
  EXPECT_EQ(keeping.push(0xC3), "");
  EXPECT_EQ(keeping.push(256), std::string(kReplacement) + "<s>");
}

TEST(Detokenizer, StreamedEqualsWholeOnRandomIds) {
  auto tokenizer = tiny_tokenizer();
  ASSERT_TRUE(tokenizer);
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids(1 + rng() % 30);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 3 ? rng() % 256 : rng() % 2600);
    for (bool skip : {false, true}) {
      Detokenizer d(tokenizer, skip);
      std::string streamed;
      for (int32_t id : ids) {
        std::string now = d.push(id);
        ASSERT_TRUE(is_utf8(now));
        streamed += now;
        ASSERT_LE(d.pending(), 3u);
      }
      ASSERT_EQ(streamed + d.flush(), tokenizer->decode(ids, skip));
    }
  }
}

}  // namespace
}  // namespace godwit::tokenizer
