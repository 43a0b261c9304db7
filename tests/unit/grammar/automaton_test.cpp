// What masks rely on: safe sets, bounds of numbers, tokens that are no whole characters.
#include <gtest/gtest.h>

#include <cmath>

#include "fixtures.h"
#include "grammar/number_dfa.h"
#include "grammar/regex.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace godwit::grammar::test {
namespace {

std::string random_regex(Random& random, int depth) {
  static const char* kAtoms[] = {"a", "b", "[ab]", "[^a]", ".", "\\\\w", "é", "[α-ω]", "[^é]", "x"};
  if (depth == 0) {
    std::string atom = kAtoms[random() % 10];
    return atom == "\\\\w" ? "\\w" : atom;
  }
  const std::string a = random_regex(random, depth - 1);
  const std::string b = random_regex(random, depth - 1);
  switch (random() % 6) {
    case 0:
      return "(" + a + "|" + b + ")";
    case 1:
      return "(" + a + ")*";
    case 2:
      return "(" + a + b + "?)+";
    case 3:
      return a + "{1,2}" + b;
    default:
      return a + b;
  }
}

TEST(GrammarAutomaton, NothingFailsAfterSafeCharacters) {
  size_t checked = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const std::string pattern = "(" + random_regex(random, 3) + ")*";
    auto dfa = compile_regex(pattern, {random() % 2 ? Spelling::json : Spelling::plain, false, false});
    if (!dfa.ok()) continue;  // it has a repeat of a repeat
    for (uint32_t start = 0; start < dfa->size(); ++start) {
      const SafeSet& safe = dfa->at(start).safe;
      std::vector<uint32_t> characters;
      for (uint32_t c = 0; c < 0x3000; c += c < 0x80 ? 1 : 61) {
        std::string text;
        tokenizer::append_utf8(text, c);
        SafeSet one;
        one.add(static_cast<uint8_t>(text[0]));
        if (safe.covers(one)) characters.push_back(c);
      }
      for (int i = 0; i < 20 && !characters.empty(); ++i) {
        std::string text;
        for (int k = 0; k < 12; ++k) tokenizer::append_utf8(text, characters[random() % characters.size()]);
        uint32_t state = start;
        for (char c : text) {
          state = dfa->next(state, static_cast<uint8_t>(c));
          ASSERT_NE(state, kNone) << pattern << " state " << start << " text " << text;
        }
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 5000u);
}

TEST(GrammarAutomaton, NumbersWithinBounds) {
  Random random(5);
  size_t inside = 0;
  for (int round = 0; round < 300; ++round) {
    auto value = [&] {  // exact as a double
      const int digits = static_cast<int>(random() % 4);
      return static_cast<double>(static_cast<int>(random() % 4001) - 2000) / std::pow(2.0, digits);
    };
    NumberRange range;
    range.integer = random() % 2 == 0;
    const double low = value();
    const double high = value();
    if (random() % 4) range.min = NumberBound{low, random() % 2 == 0};
    if (random() % 4) range.max = NumberBound{high, random() % 2 == 0};
    const auto dfa = number_dfa(range);
    for (int i = 0; i < 60; ++i) {
      double x = i < 20 ? low + (i - 10) * 0.125 : i < 40 ? high + (i - 30) * 0.125 : value();
      if (range.integer) x = std::floor(x);
      const std::string text = range.integer ? fmt::format("{:.0f}", x + 0.0) : fmt::format("{}", x + 0.0);
      const bool in = (!range.min || (range.min->exclusive ? x > low : x >= low)) &&
                      (!range.max || (range.max->exclusive ? x < high : x <= high));
      uint32_t state = dfa ? 0 : kNone;
      for (size_t k = 0; k < text.size() && state != kNone; ++k)
        state = dfa->next(state, static_cast<uint8_t>(text[k]));
      ASSERT_EQ(state != kNone && dfa->at(state).accept, in) << text << " low " << low << " high " << high;
      inside += in ? 1 : 0;
    }
  }
  EXPECT_GT(inside, 2000u);
}

// Tokens that are broken or cut characters, side by side with whole ones, against accept.
TEST(GrammarAutomaton, TokensThatAreNoWholeCharacters) {
  Json vocabulary{JsonObject()};
  auto add = [&](const std::string& bytes) {
    vocabulary.as_object().set(tokenizer::encode_byte_level(bytes),
                               static_cast<int64_t>(vocabulary.as_object().size()));
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* text :
       {"a\xff",
        "a\xff"
        "b",
        "a\xc3", "a\xc3\xa9", "a\xc3\xa9z", "a\xed\xa0\x80", "ab", "b\xe4\xb8", "b\xe4\xb8\xad", "\xa9z",
        "\xb8\xad\"", "c\x80", "cd", "a\xc3\"", "b\xc0\x80", "bb"})
    add(text);
  const auto end = static_cast<int32_t>(vocabulary.as_object().size());
  const Json file = Json::object(
      {{"model",
        Json::object(
            {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", JsonArray()}, {"ignore_merges", true}})},
       {"added_tokens",
        JsonArray{Json::object({{"id", end}, {"content", "<|endoftext|>"}, {"special", true}})}},
       {"pre_tokenizer", Json::object({{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", false},
                                       {"use_regex", true}})},
       {"decoder", Json::object({{"type", "ByteLevel"}})}});
  auto tokenizer = tokenizer::Tokenizer::from_json(dump_json(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto index = TokenIndex::make(*tokenizer, (*tokenizer)->size(), {&end, 1}).value();
  for (const char* schema : {R"({"type": "string"})", R"({"type": "string", "maxLength": 3})",
                             R"({"type": "string", "pattern": "^[^é]*$"})"}) {
    GrammarSpec spec;
    spec.content = GrammarSpec::Content::json_schema;
    spec.schema = json(schema);
    Matcher matcher(*compile(spec, index), false);
    for (const char* prefix : {"\"", "a", "\xc3", "\xa9", "\xe4", "\xb8"}) {
      if (!matcher.accept((*tokenizer)->id_of(prefix))) continue;
      std::vector<uint32_t> mask(index->mask_words());
      matcher.fill_mask(mask);
      for (int32_t id = 0; id < index->vocab_size(); ++id) {
        Matcher copy = matcher;
        EXPECT_EQ(copy.accept(id), allows(mask, id)) << schema << " id " << id;
      }
    }
  }
}

}  // namespace
}  // namespace godwit::grammar::test
