#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "sample.h"
#include "tokenizer/control_ids.h"

namespace godwit::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, const AddedTokens& added = AddedTokens::all(),
           std::span<const LiteralRange> literal = {}) {
  auto ids = tokenizer.encode(text, added, literal);
  EXPECT_TRUE(ids.ok()) << (ids.ok() ? "" : ids.error().message);
  return ids.ok() ? *ids : Ids{};
}

TEST(Encode, MergesByRankThenLeftmost) {
  auto t = Sample{.merges = {{"a", "b"}, {"b", "c"}, {"a", "a"}, {"ab", "c"}}, .ignore_merges = false}.load();
  ASSERT_TRUE(t);
  EXPECT_EQ(encode(*t, "abc"), (Ids{259}));
  EXPECT_EQ(encode(*t, "bc"), (Ids{257}));
  EXPECT_EQ(encode(*t, "aaa"), (Ids{258, 'a'}));  // equal ranks: the left pair first
  EXPECT_EQ(encode(*t, "aab"), (Ids{'a', 256}));  // "ab" has the lower rank
  EXPECT_EQ(encode(*t, ""), Ids{});
}

TEST(Encode, IgnoreMergesTakesWholePreTokens) {
  Sample sample{.merges = {{"a", "b"}}, .extra_tokens = {"abc", " x"}};
  EXPECT_EQ(encode(*sample.load(), "abc x abcd"), (Ids{257, 258, ' ', 256, 'c', 'd'}));
  sample.ignore_merges = false;
  EXPECT_EQ(encode(*sample.load(), "abc x"), (Ids{256, 'c', ' ', 'x'}));
}

TEST(Encode, ListAndStringMergesAgree) {
  Sample sample{.merges = {{" ", "t"}, {" t", "h"}, {"\xC3", "\xA9"}, {"\n", "\n"}}};
  auto lists = sample.load();
  sample.string_merges = true;
  auto strings = sample.load();
  ASSERT_TRUE(lists && strings);
  std::string text = "x the é\n\n th";
  EXPECT_EQ(encode(*lists, text), encode(*strings, text));
  EXPECT_EQ(lists->decode(encode(*lists, text)), text);
}

TEST(Encode, AddedTokensLeftmostLongest) {
  auto t = Sample{.added = {{"<a>", true}, {"<a><b>", false}, {"/nothink", false}, {"b><c", false}}}.load();
  ASSERT_TRUE(t);
  EXPECT_EQ(encode(*t, "x<a>y"), (Ids{'x', 256, 'y'}));
  EXPECT_EQ(encode(*t, "<a><b><c"), (Ids{257, '<', 'c'}));      // longest of two at one place
  EXPECT_EQ(encode(*t, "<a><b"), (Ids{256, '<', 'b'}));         // the longer one does not finish
  EXPECT_EQ(encode(*t, "<a<b><c"), (Ids{'<', 'a', '<', 259}));  // leftmost
  EXPECT_EQ(encode(*t, "w/nothinking"), (Ids{'w', 258, 'i', 'n', 'g'}));
  EXPECT_EQ(encode(*t, "<a><a>"), (Ids{256, 256}));
}

TEST(Encode, PolicyDecidesWhichAddedTokensCount) {
  auto t = Sample{.added = {{"<a>", true}, {"<a><b>", false}}}.load();
  ASSERT_TRUE(t);
  EXPECT_EQ(encode(*t, "<a><b>", AddedTokens::none()), (Ids{'<', 'a', '>', '<', 'b', '>'}));
  EXPECT_EQ(encode(*t, "<a><b>", AddedTokens::only(std::array{256})), (Ids{256, '<', 'b', '>'}));
  EXPECT_EQ(encode(*t, "<a><b><a>", AddedTokens::only(std::array{257})), (Ids{257, '<', 'a', '>'}));
}

TEST(Encode, LiteralRangesAreText) {
  auto t = Sample{.merges = {{"x", "y"}}, .added = {{"<a>", true}}}.load();  // "xy" is 256, "<a>" 257
  ASSERT_TRUE(t);
  std::string text = "<a>x<a>y<a>";
  EXPECT_EQ(encode(*t, text, AddedTokens::all(), std::array{LiteralRange{3, 8}}),
            (Ids{257, 'x', '<', 'a', '>', 'y', 257}));
  // One byte of overlap is enough: half of a control token from a message must not complete one.
  EXPECT_EQ(encode(*t, text, AddedTokens::all(), std::array{LiteralRange{2, 3}, LiteralRange{8, 9}}),
            (Ids{'<', 'a', '>', 'x', 257, 'y', '<', 'a', '>'}));
  // Text is merged across the edges of a range.
  EXPECT_EQ(encode(*t, "xy", AddedTokens::all(), std::array{LiteralRange{1, 2}}), (Ids{256}));
  EXPECT_FALSE(t->encode("abc", AddedTokens::all(), std::array{LiteralRange{2, 4}}).ok());
  EXPECT_FALSE(t->encode("abc", AddedTokens::all(), std::array{LiteralRange{1, 2}, LiteralRange{0, 1}}).ok());
  EXPECT_FALSE(t->encode("a\xFF", AddedTokens::all(), std::array{LiteralRange{0, 1}}).ok());
}

// Against a plain search that tries every content at every position.
TEST(Encode, AddedTokenSearchEqualsNaiveSearch) {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    Sample sample;
    std::set<std::string> contents;
    auto random_word = [&](size_t longest) {
      std::string word;
      for (size_t n = 1 + rng() % longest; n > 0; --n) word += static_cast<char>('a' + rng() % 3);
      return word;
    };
    for (int i = 0; i < 6; ++i) contents.insert(random_word(6));
    for (const auto& content : contents) sample.added.emplace_back(content, false);
    auto t = sample.load();
    ASSERT_TRUE(t);
    for (int i = 0; i < 50; ++i) {
      std::string text = random_word(60);
      Ids expected;
      for (size_t at = 0; at < text.size();) {
        const AddedToken* best = nullptr;
        for (const AddedToken& token : t->added_tokens()) {
          if (text.compare(at, token.content.size(), token.content) == 0 &&
              (!best || token.content.size() > best->content.size()))
            best = &token;
        }
        expected.push_back(best ? best->id : text[at]);
        at += best ? best->content.size() : 1;
      }
      ASSERT_EQ(encode(*t, text), expected) << text;
    }
  }
}

TEST(Encode, MalformedUtf8CountsAsReplacement) {
  auto t = tiny_tokenizer();
  ASSERT_TRUE(t);
  EXPECT_EQ(encode(*t, "a\xF0\x9F\x98 b\xFF"), encode(*t, "a\uFFFD b\uFFFD"));
  std::mt19937 rng(9);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(rng() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(rng());
    EXPECT_EQ(encode(*t, bytes), encode(*t, replace_malformed(bytes)));
  }
}

TEST(Encode, DecodeGivesTheTextBack) {
  auto tiny = tiny_tokenizer();
  ASSERT_TRUE(tiny);
  auto small = Sample{
      .merges = {{"a", " "}, {"w", "o"}, {"wo", "r"}, {"\xE6", "\x9D"}},
      .extra_tokens = {
          "word"}}.load();
  std::mt19937 rng(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text = random_text(rng, rng() % 24);
    ASSERT_EQ(tiny->decode(encode(*tiny, text)), text);
    ASSERT_EQ(small->decode(encode(*small, text)), text);
    ASSERT_EQ(tiny->decode(encode(*tiny, text, AddedTokens::none())), text);
  }
}

// Short and long pieces go through different merging code; below, a plain quadratic merge decides.
TEST(Encode, EveryLengthMergesAlike) {
  Sample sample{
      .merges = {{"a", "a"}, {"b", "a"}, {"aa", "b"}, {"aa", "aa"}, {"b", "b"}, {"aab", "ba"}, {"a", "b"}},
      .ignore_merges = false};
  auto t = sample.load();
  ASSERT_TRUE(t);
  std::mt19937 rng(2);
  for (size_t length = 1; length < 300; ++length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += rng() % 3 ? 'a' : 'b';
    std::vector<std::string> parts;
    for (char c : text) parts.emplace_back(1, c);
    for (;;) {
      size_t best = sample.merges.size(), where = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        auto at = std::find(sample.merges.begin(), sample.merges.end(), std::pair(parts[i], parts[i + 1]));
        auto rank = static_cast<size_t>(at - sample.merges.begin());
        if (rank < best) best = rank, where = i;
      }
      if (best == sample.merges.size()) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(where) + 1);
    }
    Ids expected;
    for (const auto& part : parts) expected.push_back(t->id_of(part));
    ASSERT_EQ(encode(*t, text), expected) << text;
  }
}

TEST(Encode, MegabyteWithoutSpacesIsNotQuadratic) {
  auto t = tiny_tokenizer();
  ASSERT_TRUE(t);
  std::mt19937 rng(4);
  std::string letters(1 << 20, 'a');
  for (char& c : letters) c = static_cast<char>('a' + rng() % 26);
  std::string marks;
  while (marks.size() < (1 << 20)) marks += "\u0301";
  for (const std::string& text : {std::string(1 << 20, '='), std::string(1 << 20, ' '), letters, marks}) {
    auto start = std::chrono::steady_clock::now();
    Ids ids = encode(*t, text);
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    EXPECT_LT(spent.count(), 10.0);  // seconds; quadratic time would be hours
    EXPECT_EQ(t->decode(ids), text);
  }
}

TEST(Encode, RefusesTextsPastTheLimit) {
  auto ids = tiny_tokenizer()->encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a'));
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::too_large);
}

TEST(Encode, ThreadsAgree) {
  auto t = tiny_tokenizer();
  ASSERT_TRUE(t);
  std::mt19937 rng(8);
  std::string text = random_text(rng, 4000);
  Ids expected = encode(*t, text);
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) count += *t->encode(text) != expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

TEST(TinyTokenizer, VocabularyAndControlIds) {
  auto t = tiny_tokenizer();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->size(), 2536);
  EXPECT_EQ(t->added_tokens().size(), 36u);
  EXPECT_TRUE(t->is_special(2500));
  EXPECT_TRUE(t->is_added(t->id_of("<think>")));
  EXPECT_FALSE(t->is_special(t->id_of("<think>")));
  EXPECT_FALSE(t->has(2536));
  EXPECT_FALSE(t->has(-1));
  EXPECT_EQ(t->bytes_of(2536), "");
  ControlIds c = find_control_ids(*t);
  EXPECT_EQ(t->bytes_of(c.think_open), "<think>");
  EXPECT_EQ(t->bytes_of(c.arg_value_close), "</arg_value>");
  EXPECT_EQ(t->bytes_of(c.video), "<|video|>");
  EXPECT_EQ(encode(*t, "<|user|>"), (Ids{c.user}));
  for (const AddedToken& token : t->added_tokens()) {
    Ids ids = encode(*t, "go" + token.content + "on");
    EXPECT_EQ(std::count(ids.begin(), ids.end(), token.id), 1) << token.content;
    EXPECT_EQ(t->decode(ids, true), token.special ? "goon" : "go" + token.content + "on");
  }
  EXPECT_EQ(find_control_ids(*Sample{.extra_tokens = {"<think>"}}.load()).think_open, -1);
}

}  // namespace
}  // namespace godwit::tokenizer
