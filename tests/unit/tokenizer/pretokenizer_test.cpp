#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample.h"
#include "tokenizer/unicode.h"

namespace godwit::tokenizer {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(const PreTokenizer& splitter, std::string_view text) {
  std::vector<uint32_t> ends;
  for (size_t at = 0; at < text.size();) {
    auto next = splitter.split(text, at, ends);
    EXPECT_TRUE(next.ok());
    if (!next.ok() || *next <= at) break;
    EXPECT_EQ(*next, ends.back());
    at = *next;
  }
  Pieces pieces;
  size_t at = 0;
  for (uint32_t end : ends) {
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

Pieces glm(std::string_view text) {
  static auto splitter = make_glm_splitter();
  return split(*splitter, text);
}

TEST(GlmSplitter, VectorsOfTheSpecification) {  // api spec §1.3
  EXPECT_EQ(glm("it's 1234567"), (Pieces{"it", "'s", " ", "123", "456", "7"}));
  EXPECT_EQ(glm("don'T I'LL"), (Pieces{"don", "'T", " I", "'LL"}));
  EXPECT_EQ(glm("a   1"), (Pieces{"a", "  ", " ", "1"}));
  EXPECT_EQ(glm("x \n\n  y"), (Pieces{"x", " \n\n", " ", " y"}));
  EXPECT_EQ(glm("\tfoo  \n"), (Pieces{"\tfoo", "  \n"}));
  EXPECT_EQ(glm("foo.bar()\n\n"), (Pieces{"foo", ".bar", "()\n\n"}));
  EXPECT_EQ(glm("x='y'"), (Pieces{"x", "='", "y", "'"}));
  EXPECT_EQ(glm("a_b-c"), (Pieces{"a", "_b", "-c"}));
  EXPECT_EQ(glm("1½²٣"), (Pieces{"1½²", "٣"}));
  EXPECT_EQ(glm("e\u0301a"), (Pieces{"e", "\u0301a"}));
  EXPECT_EQ(glm("a\u3000\u3000b"), (Pieces{"a", "\u3000", "\u3000b"}));
  EXPECT_EQ(glm("--\n--"), (Pieces{"--\n", "--"}));
  EXPECT_EQ(glm("\u200bword"), (Pieces{"\u200bword"}));
}

TEST(GlmSplitter, Contractions) {  // rule 1
  for (const char* tail : {"s", "T", "m", "D", "re", "VE", "lL"}) {
    std::string contraction = std::string("'") + tail;
    EXPECT_EQ(glm("x" + contraction + "y"), (Pieces{"x", contraction, "y"}));
  }
  EXPECT_EQ(glm("'\u017fx"), (Pieces{"'\u017f", "x"}));  // folds to 's'
  EXPECT_EQ(glm("'rx"), (Pieces{"'rx"}));
  EXPECT_EQ(glm("'l"), (Pieces{"'l"}));
  EXPECT_EQ(glm("'r"), (Pieces{"'r"}));
  EXPECT_EQ(glm("'"), (Pieces{"'"}));
  EXPECT_EQ(glm("''s"), (Pieces{"''", "s"}));
}

TEST(GlmSplitter, LetterRunsTakeOneCharacterBefore) {  // rule 2
  EXPECT_EQ(glm("\u00a0wort \"quoted\""), (Pieces{"\u00a0wort", " \"", "quoted", "\""}));
  EXPECT_EQ(glm("\rword"), (Pieces{"\r", "word"}));
  EXPECT_EQ(glm("7word"), (Pieces{"7", "word"}));
  EXPECT_EQ(glm("日本語 text"), (Pieces{"日本語", " text"}));
  std::string letters(1000, 'q');
  EXPECT_EQ(glm(letters + "é" + letters + "!"), (Pieces{letters + "é" + letters, "!"}));
}

TEST(GlmSplitter, WhiteSpace) {  // rule 5
  EXPECT_EQ(glm(" "), (Pieces{" "}));
  EXPECT_EQ(glm("   "), (Pieces{"   "}));
  EXPECT_EQ(glm("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(glm("a \r\n \n \t b"), (Pieces{"a", " \r\n \n", " \t", " b"}));
  EXPECT_EQ(glm("\n\n\n"), (Pieces{"\n\n\n"}));
  EXPECT_EQ(glm(" \t1"), (Pieces{" ", "\t", "1"}));
}

// `splitter` matches single characters: between two letters it cuts exactly when the text has one.
bool has_match(const PreTokenizer& splitter, const std::string& text) {
  return split(splitter, "a" + text + "a").size() > 1;
}

TEST(GlmSplitter, EqualsPcre2OnRandomText) {
  auto oracle = make_regex_splitter(kGlmPattern);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  // Debian's PCRE2 knows Unicode 14, and its \s has U+180E: texts with such characters are left out.
  auto stranger = make_regex_splitter(R"([\p{Cn}\x{180E}])");
  ASSERT_TRUE(stranger.ok());
  std::mt19937 rng(11);
  int compared = 0;
  for (int i = 0; i < 60000; ++i) {
    std::string text = random_text(rng, 1 + rng() % 16);
    if (has_match(**stranger, text)) continue;
    ++compared;
    ASSERT_EQ(glm(text), split(**oracle, text)) << "text " << i;
  }
  EXPECT_GT(compared, 20000);
}

TEST(GlmSplitter, BatchesJoinSeamlessly) {
  std::string text;
  for (int i = 0; i < 3 * static_cast<int>(PreTokenizer::kBatch); ++i) text += "ab 1";
  Pieces pieces = glm(text);
  EXPECT_EQ(pieces.size(), text.size() / 4 * 3);
  std::string joined;
  for (const auto& piece : pieces) joined += piece;
  EXPECT_EQ(joined, text);
}

TEST(CharClasses, KnownCodePoints) {
  const CharClass* classes = char_classes();
  EXPECT_EQ(classes['A'], CharClass::letter);
  EXPECT_EQ(classes['7'], CharClass::number);
  EXPECT_EQ(classes['\n'], CharClass::newline);
  EXPECT_EQ(classes[0x85], CharClass::space);
  EXPECT_EQ(classes[0x200B], CharClass::other);
  EXPECT_EQ(classes[0x180E], CharClass::other);
  EXPECT_EQ(classes[0x301], CharClass::other);
  EXPECT_EQ(classes[0x1C89], CharClass::letter);  // new in Unicode 16
  EXPECT_EQ(classes[0x10FFFF], CharClass::other);
}

TEST(RegexSplitter, GapsAndEmptyMatches) {
  auto digits = make_regex_splitter("[0-9]+");
  ASSERT_TRUE(digits.ok());
  EXPECT_EQ(split(**digits, "ab12cd3"), (Pieces{"ab", "12", "cd", "3"}));
  EXPECT_EQ(split(**digits, "abc"), (Pieces{"abc"}));
  auto maybe_empty = make_regex_splitter("x*");
  ASSERT_TRUE(maybe_empty.ok());
  EXPECT_EQ(split(**maybe_empty, "éaxxb"), (Pieces{"éa", "xx", "b"}));
}

TEST(RegexSplitter, ByteLevelPattern) {
  auto splitter = make_pre_tokenizer(kByteLevelPattern);
  ASSERT_TRUE(splitter.ok());
  EXPECT_EQ(split(**splitter, "It's 12345  fine"), (Pieces{"It", "'s", " 12345", " ", " fine"}));
}

TEST(RegexSplitter, RefusesBadPatternAndStopsRunaways) {
  auto bad = make_regex_splitter("a(b");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, testing::HasSubstr("offset 3"));
  auto runaway = make_regex_splitter("(?:a|aa)+[bc]");
  ASSERT_TRUE(runaway.ok());
  std::vector<uint32_t> ends;
  auto result = (*runaway)->split(std::string(64, 'a'), 0, ends);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::unprocessable);
}

}  // namespace
}  // namespace godwit::tokenizer
