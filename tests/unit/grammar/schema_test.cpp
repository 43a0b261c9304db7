// What is refused, with which words; what the subset's keywords mean; limits.
#include <gtest/gtest.h>

#include <chrono>

#include "fixtures.h"

namespace godwit::grammar::test {
namespace {

struct Refused {
  const char* schema;
  const char* keyword;
  const char* path;
};

TEST(GrammarSchema, NamesTheKeywordAndItsPlace) {
  const Refused rows[] = {
      {R"({"not": {}})", "not", "#"},
      {R"({"if": {}, "then": {}})", "if", "#"},
      {R"({"type": "object", "patternProperties": {"a": {}}})", "patternProperties", "#"},
      {R"({"type": "object", "propertyNames": {}})", "propertyNames", "#"},
      {R"({"type": "object", "minProperties": 1})", "minProperties", "#"},
      {R"({"type": "object", "maxProperties": 1})", "maxProperties", "#"},
      {R"({"type": "object", "dependentRequired": {}})", "dependentRequired", "#"},
      {R"({"type": "object", "dependentSchemas": {}})", "dependentSchemas", "#"},
      {R"({"type": "object", "unevaluatedProperties": false})", "unevaluatedProperties", "#"},
      {R"({"properties": {"a": {"type": "array", "contains": {}}}})", "contains", "#/properties/a"},
      {R"({"type": "array", "items": {"minContains": 1}})", "minContains", "#/items"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems", "#"},
      {R"({"type": "array", "items": [{}]})", "items", "#"},
      {R"({"type": "array", "additionalItems": false})", "additionalItems", "#"},
      {R"({"type": "array", "unevaluatedItems": false})", "unevaluatedItems", "#"},
      {R"({"type": "array", "prefixItems": []})", "prefixItems", "#"},
      {R"({"type": "array", "items": false, "minItems": 1})", "minItems", "#"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "minItems", "#"},
      {R"({"type": "array", "minItems": -1})", "minItems", "#"},
      {R"({"type": "integer", "multipleOf": 5})", "multipleOf", "#"},
      {R"({"type": "integer", "minimum": "0"})", "minimum", "#"},
      {R"({"type": "integer", "exclusiveMinimum": true})", "exclusiveMinimum", "#"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "maximum", "#"},
      {R"({"type": "string", "minLength": 5, "maxLength": 4})", "minLength", "#"},
      {R"({"type": "string", "maxLength": 1.5})", "maxLength", "#"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "pattern", "#"},
      {R"({"type": "string", "pattern": "(a"})", "pattern", "#"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "pattern", "#"},
      {R"({"type": "string", "pattern": "\\bword\\b"})", "pattern", "#"},
      {R"({"type": "string", "pattern": "^abc$", "maxLength": 2})", "maxLength", "#"},
      {R"({"anyOf": [{"type": "string"}, {"type": "text"}]})", "type", "#/anyOf/1"},
      {R"({"type": ["string", "any"]})", "type", "#"},
      {R"({"type": []})", "type", "#"},
      {R"({"enum": "a"})", "enum", "#"},
      {R"({"enum": ["a"], "minLength": 1})", "minLength", "#"},
      {R"({"anyOf": []})", "anyOf", "#"},
      {R"({"oneOf": {}})", "oneOf", "#"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "pattern", "#"},
      {R"({"allOf": [{"additionalProperties": false, "properties": {"a": {}}}, {"properties": {"b": {}}}]})",
       "additionalProperties", "#"},
      {R"({"required": "a"})", "required", "#"},
      {R"({"properties": {}, "required": ["a"], "additionalProperties": false})", "required", "#"},
      {R"({"properties": []})", "properties", "#"},
      {R"({"properties": {"a": 5}})", "properties", "#"},
      {R"({"$ref": "other.json#/a"})", "$ref", "#"},
      {R"({"$ref": "#/$defs/none"})", "$ref", "#"},
      {R"({"$ref": "#anchor"})", "$ref", "#"},
      {R"({"$ref": 5})", "$ref", "#"},
      {R"({"items": {"$dynamicRef": "#a"}})", "$dynamicRef", "#/items"},
      {R"({"nullable": "yes"})", "nullable", "#"},
      {R"({"a/b": 1})", "a/b", "#"},
  };
  for (const Refused& row : rows) {
    const std::string message = compile_error(row.schema);
    const std::string start = fmt::format("JSON Schema keyword '{}' at {}: ", row.keyword, row.path);
    EXPECT_TRUE(message.starts_with(start)) << row.schema << "\n" << message;
    EXPECT_GT(message.size(), start.size() + 5) << message;
  }
}

struct Meaning {
  const char* schema;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

TEST(GrammarSchema, KeywordsMeanWhatTheySay) {
  const Meaning rows[] = {
      {"true",
       {"null", "[]", "{}", R"({"a": [1, "x", {"b": null}]})", "-1.5e+3"},
       {"", "nul", "[1,]", "{\"a\"}", "01", "[1 ,2]"}},
      {R"({"type": "object"})", {"{}", "{ }", R"({"a": 1})"}, {"[]", "{\n\n}", "{  }", R"({"a": 1}  )"}},
      {R"({"properties": {"a": {"type": "null"}, "b": {}}, "required": ["b"]})",
       {R"({"b": 1})", R"({"a": null, "b": 1})", "{\n  \"b\": 2\n}"},
       {"{}", R"({"a": null})", R"({"b": 1, "a": null})", R"({"a": 1, "b": 1})", R"({"b": 1, "c": 2})",
        R"({"b": 1,})", R"({, "b": 1})"}},
      {R"({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a": "x", "c": 1, "b": 2})", R"({"aa": 1})", R"({"c\n": 1})"},
       {R"({"c": "x"})", R"({"c": 1, "a": 1})", R"({"\u0061": 1})"}},
      {R"({"properties": {}})", {"{}"}, {R"({"a": 1})"}},
      {R"({"required": ["k"]})", {R"({"k": 1})", R"({"k": 1, "z": 2})"}, {"{}", R"({"z": 1})"}},
      {R"({"type": "array", "minItems": 2, "maxItems": 3})",
       {"[1, 2]", "[1,2,3]", "[\n1,\n2\n]"},
       {"[]", "[1]", "[1,2,3,4]", "[1, 2"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "string"}]})",
       {"[]", "[1]", R"([1, "a"])"},
       {R"(["a"])", R"([1, "a", 2])"}},
      {R"({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}})",
       {"[]", "[1]", "[1, true, false]"},
       {"[1, 1]", "[true]"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("日本語")", R"("\n\"")", R"("\ud83d\ude00a")", R"("😀😀")"},
       {R"("a")", R"("abcd")", R"("\n")", R"("\ud83d\ude00")", R"("😀")"}},
      {R"({"type": "string"})",
       {R"("")", R"("\/\b\u00e9")"},
       {R"("\x")", R"("\ud83d")", R"("\ude00")", "\"\n\"", "\"\t\"", R"("a)"}},
      {R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4})",
       {R"("ab")", R"("abcd")"},
       {R"("a")", R"("abcde")", R"("AB")"}},
      {R"({"type": "string", "pattern": "a.c"})", {R"("abc")", R"("xabcx\n")"}, {R"("ac")", R"("a\nc")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2026-02-28T23:59:59Z")", R"("2026-02-28T23:59:59.5+01:00")"},
       {R"("2026-13-28T23:59:59Z")", R"("2026-02-28")"}},
      {R"({"type": "string", "format": "uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {R"({"type": "string", "format": "ipv4"})", {R"("10.0.255.1")"}, {R"("10.0.256.1")", R"("10.0.1")"}},
      {R"({"type": "string", "format": "color"})", {R"("anything")"}, {"1"}},
      {R"({"type": "integer"})",
       {"0", "-7", "12345678901234567890"},
       {"01", "1.0", "1e3", "-", "123456789012345678901"}},
      {R"({"type": "number"})", {"0", "-0.5", "1e5", "2.5E-10"}, {".5", "5.", "1e", "+1", "1e999", "NaN"}},
      {R"({"type": "integer", "minimum": -12, "maximum": 120})",
       {"-12", "-9", "0", "99", "120"},
       {"-13", "-20", "121", "200", "1000"}},
      {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 11})",
       {"10"},
       {"9", "11", "100", "-10", "1"}},
      {R"({"type": "integer", "minimum": 0.5})", {"1", "100"}, {"0", "-1"}},
      {R"({"type": "number", "minimum": 0})", {"0", "0.0", "12.25"}, {"-0.1", "-1", "1e5"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})",
       {"0.001", "1", "1.0"},
       {"0", "0.0", "1.01", "2", "-0"}},
      {R"({"type": "number", "minimum": -1.25, "exclusiveMaximum": -0.5})",
       {"-1.25", "-1", "-0.51"},
       {"-1.26", "-0.5", "-2", "0", "1"}},
      {R"({"enum": ["a", 1, null, [1], {"k": "v"}]})",
       {R"("a")", "1", "null", "[1]", "[ 1 ]", R"({"k": "v"})"},
       {"2", R"("b")", "[2]", "[]", R"({"k": "w"})"}},
      {R"({"const": "x\"y"})", {R"("x\"y")"}, {R"("x")"}},
      {R"({"type": "integer", "enum": ["a", 1, 2.5]})", {"1"}, {R"("a")", "2.5"}},
      {R"({"type": ["integer", "null"]})", {"1", "null"}, {"1.5", R"("a")"}},
      {R"({"type": "integer", "nullable": true})", {"1", "null"}, {"true"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
       {"1", R"("a")"},
       {R"("ab")", "null"}},
      {R"({"type": "object", "properties": {"t": {"type": "string"}}, "anyOf": [{"required": ["t"]}, {"properties": {"u": {"type": "null"}}, "required": ["u"]}]})",
       {R"({"t": "a"})", R"({"t": "a", "u": null})", R"({"u": null})"},
       {"{}", R"({"u": 1})"}},
      {R"({"allOf": [{"type": ["number", "null"]}, {"type": ["integer", "string"]}]})",
       {"1"},
       {"1.5", "null", R"("a")"}},
      {R"({"allOf": [{"minLength": 1}, {"minLength": 2, "maxLength": 4}, {"maxLength": 3}], "type": "string"})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")"}},
      {R"({"$ref": "#/$defs/a%20b/items", "$defs": {"a b": {"type": "array", "items": {"const": 5}}}})",
       {"5"},
       {"[5]"}},
      {R"({"$ref": "#/definitions/a", "description": "d", "definitions": {"a": {"type": "object", "properties": {"next": {"$ref": "#/definitions/a"}}}}})",
       {"{}", R"({"next": {"next": {}}})"},
       {R"({"next": 1})", R"({"next": {})"}},
      {R"({"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": {"type": "integer", "minimum": 2}}})",
       {"2", "3"},
       {"1", "4"}},
      {R"({"properties": {"a": false, "b": {}}})", {"{}", R"({"b": 1})"}, {R"({"a": 1})"}},
  };
  for (const Meaning& row : rows) {
    const auto grammar = schema_grammar(row.schema);
    ASSERT_NE(grammar, nullptr) << row.schema;
    for (const char* text : row.valid) EXPECT_TRUE(takes(grammar, text)) << row.schema << "\n" << text;
    for (const char* text : row.invalid) EXPECT_FALSE(takes(grammar, text)) << row.schema << "\n" << text;
  }
}

TEST(GrammarSchema, WhatNothingSatisfiesIsRefused) {
  for (const char* schema :
       {"false", R"({"enum": []})", R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
        R"({"$ref": "#"})", R"({"anyOf": [{"$ref": "#"}]})",
        R"({"properties": {"a": false}, "required": ["a"]})",
        R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})"})
    EXPECT_FALSE(compile_error(schema).empty()) << schema;
}

// Each is refused or compiled in bounded time (under a second; sanitizers take tens of times as long) and
// without deep recursion.
TEST(GrammarSchema, BombsAreBounded) {
  std::vector<std::string> bombs;
  for (const char* pattern :
       {"(a|a)*b", "((a*)*)*", "(a{0,100}){0,100}", "((((a{1,99}){1,99}){1,99}){1,99}){1,99}", "(x+x+)+y",
        ".*a.{20}b", "[^a]{4000}é{4000}", "(.*)(.*)(.*)(.*)(.*)[^x]$"})
    bombs.push_back(fmt::format(R"({{"type": "string", "pattern": "{}"}})", pattern));
  bombs.push_back(R"({"type": "string", "pattern": ")" + std::string(4000, '(') + "\"}");
  bombs.push_back(R"({"type": "string", "pattern": ")" + std::string(100000, 'a') + "\"}");
  bombs.push_back(R"({"type": "string", "maxLength": 2147483647})");
  bombs.push_back(R"({"type": "array", "minItems": 2147483647})");
  std::string list;
  for (int i = 0; i < 20000; ++i) list += fmt::format("{}\"value number {}\"", i ? "," : "", i);
  bombs.push_back(R"({"enum": [)" + list + "]}");
  std::string wide;
  for (int i = 0; i < 300; ++i) wide += fmt::format("{}{{\"const\": {}}}", i ? "," : "", i);
  bombs.push_back(R"({"anyOf": [)" + wide + "]}");
  std::string properties;
  for (int i = 0; i < 2000; ++i) properties += fmt::format("{}\"p{}\": {{}}", i ? "," : "", i);
  bombs.push_back(R"({"properties": {)" + properties + "}}");
  std::string deep;
  for (int i = 0; i < 55; ++i) deep += R"({"items": )";
  bombs.push_back(deep + "{}" + std::string(55, '}'));
  std::string doubling;  // each level names the one below twice
  for (int i = 0; i < 60; ++i)
    doubling += fmt::format(R"({}"d{}": {{"allOf": [{{"$ref": "#/$defs/d{}"}}, {{"$ref": "#/$defs/d{}"}}]}})",
                            i ? "," : "", i, i + 1, i + 1);
  bombs.push_back(R"({"$ref": "#/$defs/d0", "$defs": {)" + doubling + R"(, "d60": {"type": "string"}}})");
  std::string chain;
  for (int i = 0; i < 5000; ++i)
    chain += fmt::format(R"({}"c{}": {{"$ref": "#/$defs/c{}"}})", i ? "," : "", i, i + 1);
  bombs.push_back(R"({"$ref": "#/$defs/c0", "$defs": {)" + chain + R"(, "c5000": {"type": "string"}}})");
  std::string nested = "{}";
  for (int i = 0; i < 50; ++i) nested = R"({"allOf": [)" + nested + "]}";
  bombs.push_back(nested);
  std::string same;  // one property, restricted again and again
  for (int i = 0; i < 5000; ++i)
    same += fmt::format(R"({}{{"properties": {{"a": {{"minLength": {}}}}}}})", i ? "," : "", i);
  bombs.push_back(R"({"allOf": [)" + same + "]}");
  std::string names;
  for (int i = 0; i < 30000; ++i) names += fmt::format("{}\"n{}\"", i ? "," : "", i);
  bombs.push_back(R"({"allOf": [{"required": [)" + names + R"(]}, {"required": [)" + names + "]}]}");
  std::string patterns;
  for (int i = 0; i < 250; ++i)
    patterns += fmt::format(R"({}{{"type": "string", "pattern": "[a-{}]{{3,9}}.*z{}"}})", i ? "," : "",
                            static_cast<char>('b' + i % 20), i);
  bombs.push_back(R"({"anyOf": [)" + patterns + "]}");
  std::string costly;
  for (int i = 0; i < 900; ++i)
    costly += fmt::format(R"({}"p{}": {{"pattern": ".*(a|b|ab){{200}}c{}"}})", i ? "," : "", i, i);
  bombs.push_back(R"({"properties": {)" + costly + "}}");
  bombs.push_back(R"({"properties": {")" + std::string(1 << 21, 'n') + R"(": {}}})");
  bombs.push_back(R"({"const": ")" + std::string(1 << 19, 'c') + R"("})");
  for (const std::string& bomb : bombs) {
    GrammarSpec spec;
    spec.content = GrammarSpec::Content::json_schema;
    spec.schema = json(bomb);
    const std::clock_t start = std::clock();
    auto grammar = compile(spec, tiny_index());
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 30.0) << bomb.substr(0, 80);
    if (!grammar.ok()) {
      EXPECT_FALSE(grammar.error().message.empty());
      continue;
    }
    Random random(1);
    Matcher matcher(*grammar, false);
    draw(matcher, random, 30);
  }
}

// Exponentially many ways to read the same text share their tails.
TEST(GrammarSchema, AmbiguousRecursionStaysSmall) {
  const auto grammar = schema_grammar(R"({"anyOf": [
      {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
      {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"const": 1}}, "required": ["a"]},
      {"type": "null"}]})");
  std::string text;
  for (int i = 0; i < 60; ++i) text += R"({"a": )";
  text += "null";
  for (int i = 0; i < 60; ++i) text += i % 2 ? "}" : R"(, "b": 1})";
  const std::clock_t start = std::clock();
  EXPECT_TRUE(takes(grammar, text));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5.0);
}

TEST(GrammarSchema, NestingEndsAtTheDepthLimit) {
  const auto grammar = schema_grammar("true");
  EXPECT_TRUE(takes(grammar, std::string(64, '[') + std::string(64, ']')));
  EXPECT_FALSE(takes(grammar, std::string(65, '[') + std::string(65, ']')));
}

}  // namespace
}  // namespace godwit::grammar::test
