#include "chat/arguments.h"

#include <gtest/gtest.h>

#include "chat/python_literal.h"

namespace godwit::chat {
namespace {

// The JSON text that `raw` becomes under a schema.
std::string typed(std::string_view raw, std::string_view schema) {
  Json document = parse_json(schema).value();
  return dump_json(typed_value(raw, Schema(&document)));
}

struct Row {
  std::string_view schema;
  std::string_view raw;
  std::string_view json;
};

void expect_rows(std::initializer_list<Row> rows) {
  for (const Row& row : rows) EXPECT_EQ(typed(row.raw, row.schema), row.json) << row.schema << " " << row.raw;
}

TEST(Arguments, StringsAreVerbatim) {
  constexpr std::string_view kString = R"({"type":"string"})";
  expect_rows({{kString, "\"42\"", R"("\"42\"")"},
               {kString, "007", R"("007")"},
               {kString, "{\"a\":1}", R"("{\"a\":1}")"},
               {kString, " a\n", R"(" a\n")"},
               {kString, "null", R"("null")"},
               {kString, "", R"("")"},
               {R"({"enum":["a","b"]})", "a", R"("a")"}});
}

TEST(Arguments, MixedTypesPreferWhatParses) {
  constexpr std::string_view kMixed = R"({"type":["string","integer","null"]})";
  expect_rows({{kMixed, "null", "null"},
               {kMixed, " 7 ", "7"},
               {kMixed, "007", R"("007")"},
               {kMixed, "7.5", R"("7.5")"},
               {kMixed, "\"x\"", R"("\"x\"")"},
               {kMixed, "", R"("")"},
               {R"({"type":["string","integer"]})", "null", R"("null")"},
               {R"({"anyOf":[{"type":"string"},{"type":"object"}]})", R"({"a":[1,2]})", R"({"a": [1, 2]})"}});
}

TEST(Arguments, RepairsWithoutString) {
  constexpr std::string_view kInteger = R"({"type":"integer"})";
  constexpr std::string_view kBoolean = R"({"type":"boolean"})";
  expect_rows({{kInteger, "42", "42"},
               {kInteger, "\n 42 ", "42"},
               {kInteger, "\"42\"", "42"},
               {kInteger, "3.0", "3"},
               {kInteger, "3.5", R"("3.5")"},
               {kInteger, "007", R"("007")"},
               {kInteger, "many", R"("many")"},
               {kInteger, "123456789012345678901234567890", "123456789012345678901234567890"},
               {kInteger, "", R"("")"},
               {R"({"type":["integer","null"]})", "", "null"},
               {R"({"type":["integer","null"]})", "None", "null"},
               {R"({"type":"number"})", "5", "5"},
               {R"({"type":"number"})", "5.0", "5.0"},
               {R"({"type":"number"})", "1e999", R"("1e999")"},
               {R"({"type":"number"})", "NaN", R"("NaN")"},
               {kBoolean, "True", "true"},
               {kBoolean, "FALSE", "false"},
               {kBoolean, "1", "true"},
               {kBoolean, "0", "false"},
               {kBoolean, "yes", R"("yes")"},
               {R"({"type":["boolean","integer"]})", "1", "1"},
               {R"({"type":"object"})", "{'a': True, 'b': None, 'c': ['x',]}",
                R"({"a": true, "b": null, "c": ["x"]})"},
               {R"({"type":"array"})", "('a',)", "\"('a',)\""},
               {R"({"type":"object"})", "[1]", R"("[1]")"},
               {R"({"type":"object"})", "\"{\\\"a\\\": 1}\"", R"({"a": 1})"}});
}

TEST(Arguments, UntypedTakesWhatIsClearlyJson) {
  expect_rows({{"{}", R"({"a":1})", R"({"a": 1})"},
               {"{}", "true", "true"},
               {"{}", "null", "null"},
               {"{}", "12", "12"},
               {"{}", "1.50", R"("1.50")"},
               {"{}", "1e5", R"("1e5")"},
               {"{}", "-0", R"("-0")"},
               {"{}", "\"quoted\"", R"("\"quoted\"")"},
               {"{}", "plain text", R"("plain text")"},
               {R"({"type":"telepathy"})", "12", "12"},
               {"true", "[1]", "[1]"}});
}

TEST(Arguments, NestedStringsAreCoercedOnlyWhereTheSchemaForbidsStrings) {
  constexpr std::string_view kSchema = R"({"type":"object","properties":{
      "n":{"type":"integer"},"s":{"type":"string"},"l":{"type":"array","items":{"type":"boolean"}},"any":{}}})";
  EXPECT_EQ(typed(R"({"n":"4","s":"5","l":["true","no"],"any":"6"})", kSchema),
            R"({"n": 4, "s": "5", "l": [true, "no"], "any": "6"})");
}

TypeSet types(std::string_view schema) {
  Json document = parse_json(schema).value();
  return Schema(&document).types();
}

TypeSet set_of(std::initializer_list<JsonType> list) {
  TypeSet out;
  for (JsonType t : list) out.add(t);
  return out;
}

TEST(Schema, ComputesTheAllowedTypes) {
  using T = JsonType;
  EXPECT_EQ(types(R"({"type":"str"})"), set_of({T::string}));
  EXPECT_EQ(types(R"({"type":"number"})"), set_of({T::number, T::integer}));
  EXPECT_EQ(types(R"({"type":"dict","nullable":true})"), set_of({T::object, T::null}));
  EXPECT_EQ(types(R"({"enum":[1,"a",null]})"), set_of({T::integer, T::string, T::null}));
  EXPECT_EQ(types(R"({"const":false})"), set_of({T::boolean}));
  EXPECT_EQ(types(R"({"anyOf":[{"type":"string"},{"type":"null"}]})"), set_of({T::string, T::null}));
  EXPECT_EQ(types(R"({"oneOf":[{"type":"string"},{}]})"), TypeSet());
  EXPECT_EQ(types(R"({"allOf":[{"type":["string","integer"]},{},{"type":"integer"}]})"),
            set_of({T::integer}));
  EXPECT_EQ(types(R"({"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}]})"),
            set_of({T::object}));
  EXPECT_EQ(types(R"({"type":["string","unheard"]})"), TypeSet());
  EXPECT_EQ(types("[]"), TypeSet());
}

TEST(Schema, FollowsLocalReferences) {
  Json document = parse_json(R"({"properties":{"a":{"$ref":"#/$defs/x~1y"},"b":{"$ref":"#/$defs/loop"},
      "c":{"$ref":"https://example.org/s"},"d":{"$ref":"#/$defs/list/1"},"e":{"$ref":"#/$defs/x%7E1y"}},
      "patternProperties":{"^n_":{"type":"number"}},"additionalProperties":{"type":"boolean"},
      "$defs":{"x/y":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"},"list":[{},{"type":"null"}]}})")
                      .value();
  Schema schema(&document);
  EXPECT_EQ(schema.member("a").types(), set_of({JsonType::integer}));
  EXPECT_EQ(schema.member("b").types(), TypeSet());
  EXPECT_EQ(schema.member("c").types(), TypeSet());
  EXPECT_EQ(schema.member("d").types(), set_of({JsonType::null}));
  EXPECT_EQ(schema.member("e").types(), set_of({JsonType::integer}));
  EXPECT_TRUE(schema.member("n_x").types().has(JsonType::number));
  EXPECT_EQ(schema.member("other").types(), set_of({JsonType::boolean}));
}

// Each level doubles the branches: without a budget this would take 2^32 steps.
TEST(Schema, BranchBombsAreCutOff) {
  Json document =
      parse_json(
          R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}})")
          .value();
  EXPECT_EQ(Schema(&document).types(), TypeSet());
}

TEST(Schema, HostilePatternsCannotHoldTheThread) {
  Json document =
      parse_json(R"({"patternProperties":{"^(a+)+$":{"type":"integer"},"(":{"type":"null"}}})").value();
  EXPECT_EQ(Schema(&document).member(std::string(5000, 'a') + "b").types(), TypeSet());
}

TEST(PythonLiteral, ReadsDictsAndListsOnly) {
  auto read = [](std::string_view text) {
    auto value = parse_python_literal(text);
    return value ? dump_json(*value) : "no";
  };
  EXPECT_EQ(read(R"({'it\'s': "a 'b'", "n": 1e3, 't': [True, False, None,],})"),
            R"({"it's": "a 'b'", "n": 1000.0, "t": [true, false, null]})");
  EXPECT_EQ(read(R"(['\x41\u00e4\U0001f600\q\n'])"), "[\"A\u00e4\U0001f600\\\\q\\n\"]");
  for (std::string_view text : {"", "'a'", "{'a': b}", "['a' 'b'", "['a", "{1, 2}", "[lambda: 1]", "['a\nb']",
                                "[1]x", R"(['\x4'])", R"(['\U00110000'])"}) {
    EXPECT_EQ(read(text), "no") << text;
  }
  EXPECT_EQ(read(std::string(100'000, '[')), "no");
}

}  // namespace
}  // namespace godwit::chat
