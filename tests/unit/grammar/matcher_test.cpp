// Tool calls, reasoning, rollback, and what grammars share.
#include <gtest/gtest.h>

#include <thread>

#include "fixtures.h"
#include "grammar/cache.h"

namespace godwit::grammar::test {
namespace {

using Content = GrammarSpec::Content;

ToolSpec tool(std::string name, std::string_view parameters) {
  return {std::move(name), json(parameters)};
}

GrammarSpec weather_spec() {
  GrammarSpec spec;
  spec.tools = {tool("get_weather", R"({"type": "object", "properties": {"city": {"type": "string"},
                    "days": {"type": "integer", "minimum": 1, "maximum": 14}, "unit": {"enum": ["C", "F"]},
                    "tags": {"type": "array", "items": {"type": "string"}}, "alert": {"type": ["boolean", "null"]}},
                    "required": ["city"]})"),
                tool("get_time", R"({"type": "object", "properties": {}})")};
  return spec;
}

// Ids of a call written with [TC] [/TC] [K] [/K] [V] [/V] [END] for the control ids.
std::vector<int32_t> ids_of(std::string_view text) {
  const auto& c = tiny_index()->control();
  const std::pair<std::string_view, int32_t> tags[] = {
      {"[TC]", c.tool_call_open}, {"[/TC]", c.tool_call_close}, {"[K]", c.arg_key_open},
      {"[/K]", c.arg_key_close},  {"[V]", c.arg_value_open},    {"[/V]", c.arg_value_close},
      {"[END]", c.end_of_text},   {"[/T]", c.think_close}};
  std::vector<int32_t> out;
  std::string plain;
  Random random(7);
  auto flush = [&] {
    for (int32_t id : tokens_of(plain, Cut::tokenizer, random)) out.push_back(id);
    plain.clear();
  };
  while (!text.empty()) {
    auto tag = std::find_if(std::begin(tags), std::end(tags),
                            [&](const auto& t) { return text.starts_with(t.first); });
    if (tag == std::end(tags)) {
      plain += text.front();
      text.remove_prefix(1);
    } else {
      flush();
      out.push_back(tag->second);
      text.remove_prefix(tag->first.size());
    }
  }
  flush();
  return out;
}

// Whether all of it is taken; the mask agrees at each id.
bool takes_ids(const std::shared_ptr<const Grammar>& grammar, std::string_view text, bool reasoning = false) {
  Matcher matcher(grammar, reasoning);
  for (int32_t id : ids_of(text)) {
    const bool allowed = allows(mask_of(matcher), id);
    const bool taken = matcher.accept(id);
    EXPECT_EQ(allowed, taken) << text;
    if (!taken) return false;
  }
  return matcher.finished();
}

TEST(GrammarTools, RequiredCallsInGlmForm) {
  const auto grammar = compiled(weather_spec());
  const char* valid[] = {
      "[TC]get_weather[K]city[/K][V]Paris[/V][/TC][END]",
      "[TC]get_weather[K]unit[/K][V]C[/V][K]city[/K][V]Paris[/V][/TC][END]",
      "[TC]get_weather[K]city[/K][V]  \"two\nlines\" <arg_value> [/V][K]days[/K][V]14[/V][/TC][END]",
      "[TC]get_weather[K]city[/K][V][/V][K]tags[/K][V][\"a\", \"b\"][/V][K]alert[/K][V]null[/V][/TC][END]",
      "[TC]get_time[/TC][TC]get_time[/TC][END]",
      "[TC]get_time[/TC][TC]get_weather[K]city[/K][V]x[/V][/TC][END]"};
  for (const char* text : valid) EXPECT_TRUE(takes_ids(grammar, text)) << text;
  const char* invalid[] = {"[END]",
                           "text",
                           "[TC]get[/TC]",
                           "[TC]other[/TC]",
                           "[TC]get_weather[/TC]",
                           "[TC]get_time[K]a[/K]",
                           "[TC]get_weather[K]unit[/K][V]C[/V][/TC]",        // required key missing
                           "[TC]get_weather[K]city[/K][V]a[/V][K]city[/K]",  // twice
                           "[TC]get_weather[K]town[/K]",
                           "[TC]get_weather[K]city[V]",
                           "[TC]get_weather[K]city[/K][V]a[K]",  // control id in a value
                           "[TC]get_weather[K]days[/K][V]15[/V]",
                           "[TC]get_weather[K]unit[/K][V]\"C\"[/V]",
                           "[TC]get_weather[K]city[/K][V]a[/V][END]",  // open call
                           "[TC]get_time[/TC] [END]",
                           "[{\"name\": \"get_time\"}]",
                           "[/T]"};
  for (const char* text : invalid) EXPECT_FALSE(takes_ids(grammar, text)) << text;
}

TEST(GrammarTools, OneCallWhenNotParallel) {
  GrammarSpec spec = weather_spec();
  spec.parallel_calls = false;
  const auto grammar = compiled(spec);
  EXPECT_TRUE(takes_ids(grammar, "[TC]get_time[/TC][END]"));
  EXPECT_FALSE(takes_ids(grammar, "[TC]get_time[/TC][TC]get_time[/TC][END]"));
}

TEST(GrammarTools, ContentOrCalls) {
  GrammarSpec spec = weather_spec();
  spec.content = Content::any_text;
  auto grammar = compiled(spec);
  EXPECT_TRUE(takes_ids(grammar, "Let me see.[TC]get_time[/TC][END]"));
  EXPECT_TRUE(takes_ids(grammar, "no call[END]"));
  EXPECT_TRUE(takes_ids(grammar, "[END]"));
  EXPECT_FALSE(takes_ids(grammar, "a[TC]get_weather[/TC][END]"));
  spec.content = Content::json_object;
  grammar = compiled(spec);
  EXPECT_TRUE(takes_ids(grammar, "{\"a\": 1}[END]"));
  EXPECT_TRUE(takes_ids(grammar, "[TC]get_time[/TC][END]"));
  EXPECT_FALSE(takes_ids(grammar, "{}[TC]get_time[/TC][END]"));
}

TEST(GrammarTools, ArgumentsOfAnyKind) {
  GrammarSpec spec;
  spec.tools = {
      {"free", Json()},
      {"loose", json(R"({"type": "object", "properties": {"a": {"type": "integer"}}})"), false},
      tool(
          "more",
          R"({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}})")};
  const auto grammar = compiled(spec);
  EXPECT_TRUE(takes_ids(grammar, "[TC]free[/TC][END]"));
  EXPECT_TRUE(takes_ids(grammar, "[TC]free[K]x[/K][V]any \" thing[/V][K]y[/K][V]1[/V][/TC][END]"));
  EXPECT_TRUE(takes_ids(grammar, "[TC]loose[K]a[/K][V]no integer[/V][/TC][END]"));
  EXPECT_TRUE(takes_ids(grammar, "[TC]more[K]ab[/K][V]true[/V][K]a[/K][V]5[/V][/TC][END]"));
  EXPECT_FALSE(takes_ids(grammar, "[TC]more[K]a[/K][V]true[/V]"));
  EXPECT_FALSE(takes_ids(grammar, "[TC]free[K][/K]"));
}

TEST(GrammarTools, MoreArgumentsThanBits) {
  std::string properties;
  for (int i = 0; i < 70; ++i)
    properties += fmt::format("{}\"p{}\": {{\"type\": \"integer\"}}", i ? "," : "", i);
  GrammarSpec spec;
  spec.tools = {tool("big", R"({"type": "object", "required": ["p3"], "properties": {)" + properties + "}}")};
  const auto grammar = compiled(spec);
  EXPECT_TRUE(takes_ids(grammar, "[TC]big[K]p1[/K][V]1[/V][K]p3[/K][V]1[/V][K]p69[/K][V]1[/V][/TC][END]"));
  EXPECT_FALSE(takes_ids(grammar, "[TC]big[K]p1[/K][V]1[/V][/TC][END]"));
}

TEST(GrammarTools, RefusesWhatIsNoObjectSchema) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"type": "array"})", "'type'"},
      {R"({"anyOf": [{}]})", "'anyOf'"},
      {R"({"properties": {"a": {"not": {}}}})", "'not' at #/properties/a"}};
  for (const auto& [schema, part] : rows) {
    GrammarSpec spec;
    spec.tools = {tool("t", schema)};
    auto grammar = compile(spec, tiny_index());
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.error().field, "tools[0].parameters");
    EXPECT_NE(grammar.error().message.find(part), std::string::npos) << grammar.error().message;
  }
}

// api cases C38, C39, C82: free reasoning, then the grammar; C40: a burst that crosses the border.
TEST(GrammarReasoning, StartsAfterTheCloseTag) {
  GrammarSpec spec;
  spec.content = Content::json_schema;
  spec.schema =
      json(R"({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]})");
  const auto grammar = compiled(spec);
  EXPECT_TRUE(takes_ids(grammar, "so { I \" think[/T]{\"answer\": \"x\"}[END]", true));
  EXPECT_TRUE(takes_ids(grammar, "[/T]{\"answer\": \"x\"}[END]", true));
  EXPECT_FALSE(takes_ids(grammar, "thought[/T]thought", true));
  EXPECT_FALSE(takes_ids(grammar, "thought[END]", true));  // the document is still to come
  EXPECT_FALSE(takes_ids(grammar, "[/T]{\"answer\": \"x\"}[END]", false));
}

TEST(GrammarReasoning, ACallEndsIt) {
  const auto grammar = compiled(weather_spec());
  EXPECT_TRUE(takes_ids(grammar, "hm[/T][TC]get_time[/TC][END]", true));
  EXPECT_TRUE(takes_ids(grammar, "hm[TC]get_time[/TC][END]", true));
  EXPECT_FALSE(takes_ids(grammar, "hm[TC]nothing", true));
}

TEST(GrammarMatcher, RollsBackAcrossTheCloseTag) {
  const auto grammar = compiled(weather_spec());
  const auto ids = ids_of("thinking[/T][TC]get_weather[K]city[/K][V]Rome[/V][/TC][END]");
  Matcher matcher(grammar, true);
  std::vector<std::vector<uint32_t>> masks;
  for (int32_t id : ids) {
    masks.push_back(mask_of(matcher));
    ASSERT_TRUE(matcher.accept(id));
  }
  ASSERT_LE(ids.size(), Matcher::kMaxRollback);
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const size_t back = random() % (matcher.accepted() + 1);
    matcher.rollback(back);
    EXPECT_EQ(mask_of(matcher),
              matcher.accepted() < ids.size() ? masks[matcher.accepted()] : mask_of(matcher));
    const size_t forward = random() % (ids.size() - matcher.accepted() + 1);
    for (size_t k = 0; k < forward; ++k) ASSERT_TRUE(matcher.accept(ids[matcher.accepted()]));
  }
}

TEST(GrammarMatcher, RefusedIdsChangeNothing) {
  const auto grammar = schema_grammar(R"({"type": "integer"})");
  Matcher matcher(grammar, false);
  for (int32_t id : {-1, tiny_index()->vocab_size(), tiny_index()->vocab_size() - 1,
                     tiny_index()->control().think_open, end_id()})
    EXPECT_FALSE(matcher.accept(id)) << id;
  EXPECT_EQ(matcher.accepted(), 0u);
  EXPECT_TRUE(matcher.accept(tiny_tokenizer()->id_of("7")));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.accept(tiny_index()->control().user));  // any end id
  EXPECT_TRUE(matcher.finished());
  EXPECT_FALSE(matcher.accept(tiny_tokenizer()->id_of("7")));
  for (uint32_t word : mask_of(matcher)) EXPECT_EQ(word, 0u);
}

TEST(GrammarMatcher, OtherFormats) {
  GrammarSpec spec;
  spec.content = Content::choice;
  spec.choices = {"yes", "no", "not sure"};
  auto grammar = compiled(spec);
  for (const char* text : {"yes", "no", "not sure"}) EXPECT_TRUE(takes(grammar, text));
  for (const char* text : {"", "ye", "yesno", "not"}) EXPECT_FALSE(takes(grammar, text)) << text;
  spec.content = Content::regex;
  spec.regex = "\\d{3}-(?:\\w+|é)";
  grammar = compiled(spec);
  for (const char* text : {"123-a", "123-é", "000-zz_9"}) EXPECT_TRUE(takes(grammar, text));
  for (const char* text : {"", "12-a", "123-", "x123-a", "123-a "})
    EXPECT_FALSE(takes(grammar, text)) << text;
  spec.content = Content::json_object;
  grammar = compiled(spec);
  for (const char* text : {"{}", "\n{\"a\": [1]}", " {}"}) EXPECT_TRUE(takes(grammar, text));
  for (const char* text : {"[]", "1", "\n\n{}", "{}\n"}) EXPECT_FALSE(takes(grammar, text)) << text;
  spec.content = Content::none;
  EXPECT_FALSE(compile(spec, tiny_index()).ok());
  spec.content = Content::choice;
  spec.choices.clear();
  EXPECT_FALSE(compile(spec, tiny_index()).ok());
}

// A length limit makes a state of every character: more than one memory holds, so that it is replaced on the
// way.
TEST(GrammarMatcher, OutgrowsItsMemoryUnnoticed) {
  const auto grammar = schema_grammar(
      R"({"type": "array", "items": {"type": "string", "minLength": 30000, "maxLength": 30000}, "minItems": 1})");
  Matcher matcher(grammar, false);
  Matcher other(grammar, false);
  ASSERT_TRUE(matcher.accept(tiny_tokenizer()->id_of("[")));
  ASSERT_TRUE(matcher.accept(tiny_tokenizer()->id_of("\"")));
  const int32_t letter = tiny_tokenizer()->id_of("x");
  const int32_t quote = tiny_tokenizer()->id_of("\"");
  for (int i = 0; i < 30000; ++i) {
    if (i % 997 == 0) {
      EXPECT_FALSE(allows(mask_of(matcher), quote));
      mask_of(other);
    }
    ASSERT_TRUE(matcher.accept(letter)) << i;
  }
  EXPECT_FALSE(matcher.accept(letter));
  matcher.rollback(60);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(matcher.accept(letter));
  ASSERT_TRUE(matcher.accept(quote));
  ASSERT_TRUE(matcher.accept(tiny_tokenizer()->id_of("]")));
  EXPECT_TRUE(matcher.is_complete());
}

TEST(GrammarCache, KeepsTheMostRecentlyUsed) {
  GrammarCache cache(tiny_index(), 2);
  auto get = [&](std::string_view schema) {
    GrammarSpec spec;
    spec.content = Content::json_schema;
    spec.schema = json(schema);
    auto grammar = cache.get(spec);
    return grammar.ok() ? *grammar : nullptr;
  };
  const auto a = get(R"({"const": 1})");
  const auto b = get(R"({"const": 2})");
  EXPECT_NE(a, b);
  EXPECT_EQ(get(R"({"const": 1})"), a);
  EXPECT_NE(get(R"({"const": 3})"), nullptr);  // in place of b
  EXPECT_EQ(get(R"({"const": 1})"), a);
  EXPECT_NE(get(R"({"const": 2})"), b);
  EXPECT_EQ(get(R"({"not": 1})"), nullptr);
  EXPECT_EQ(cache.counts().hits, 2u);
  EXPECT_EQ(cache.counts().misses, 5u);
}

TEST(GrammarMatcher, ThreadsShareAGrammar) {
  const auto grammar = schema_grammar("true");
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&grammar, t] {
      Random random(t);
      for (int i = 0; i < 3; ++i) {
        Matcher matcher(grammar, false);
        draw(matcher, random, 100);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace godwit::grammar::test
