// Random schemas, both ways: what is drawn under the masks is valid, and what is valid is taken.
#include <gtest/gtest.h>

#include "fixtures.h"

namespace godwit::grammar::test {
namespace {

constexpr unsigned kSchemas = 150;

std::shared_ptr<const Grammar> grammar_of(const Json& schema) {
  GrammarSpec spec;
  spec.content = GrammarSpec::Content::json_schema;
  spec.schema = schema;
  return compiled(spec);
}

TEST(GrammarProperty, WhatIsDrawnUnderTheMasksIsValid) {
  unsigned finished = 0;
  for (unsigned seed = 0; seed < kSchemas; ++seed) {
    Random random(seed);
    const Json schema = random_schema(random);
    const auto grammar = grammar_of(schema);
    ASSERT_NE(grammar, nullptr) << dump_json(schema);
    for (int i = 0; i < 3; ++i) {
      Matcher matcher(grammar, false);
      const std::string text = draw(matcher, random, 600);
      if (text.empty()) continue;
      ++finished;
      auto value = parse_json(text);
      ASSERT_TRUE(value.ok()) << text << "\n" << value.error().message << "\n" << dump_json(schema);
      EXPECT_EQ(violation(*value, schema, schema), "") << text << "\n" << dump_json(schema);
    }
  }
  EXPECT_GT(finished, kSchemas * 3 * 9 / 10);
}

TEST(GrammarProperty, WhatIsValidIsTaken) {
  for (unsigned seed = 0; seed < kSchemas; ++seed) {
    Random random(1000 + seed);
    const Json schema = random_schema(random);
    const auto grammar = grammar_of(schema);
    ASSERT_NE(grammar, nullptr) << dump_json(schema);
    for (int i = 0; i < 4; ++i) {
      const Json value = random_document(schema, schema, random, 4);
      ASSERT_EQ(violation(value, schema, schema), "") << dump_json(value) << "\n" << dump_json(schema);
      JsonStyle style;
      if (i == 1) style = JsonStyle::compact();
      if (i == 2) style.indent = 2;
      const std::string text = dump_json(value, style);
      EXPECT_TRUE(takes(grammar, text)) << text << "\n" << dump_json(schema);
    }
  }
}

TEST(GrammarProperty, MasksAreWhatAcceptTakes) {
  size_t states = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Random random(2000 + seed);
    const Json schema = random_schema(random);
    const auto grammar = grammar_of(schema);
    ASSERT_NE(grammar, nullptr);
    const auto ids = tokens_of(dump_json(random_document(schema, schema, random, 3)), Cut::random, random);
    Matcher matcher(grammar, false);
    for (size_t i = 0; i <= ids.size() && i < 40; ++i) {
      const auto mask = mask_of(matcher);
      for (int32_t id = 0; id < tiny_index()->vocab_size(); ++id) {
        Matcher copy = matcher;
        ASSERT_EQ(copy.accept(id), allows(mask, id)) << id << " after " << i << "\n" << dump_json(schema);
      }
      ++states;
      if (i == ids.size()) break;
      ASSERT_TRUE(matcher.accept(ids[i]));
    }
  }
  EXPECT_GT(states, 300u);
}

}  // namespace
}  // namespace godwit::grammar::test
