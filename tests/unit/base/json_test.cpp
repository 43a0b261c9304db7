#include "base/json.h"

#include <gtest/gtest.h>

namespace godwit {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  auto value = parse_json(text, limits);
  if (value.ok()) return "accepted as " + dump_json(*value);
  EXPECT_EQ(value.error().code, ErrorCode::invalid_request);
  return value.error().message;
}

TEST(JsonParse, RefusesWhatIsNotOneDocument) {
  using namespace std::string_literals;
  const std::string documents[] = {"",
                                   " ",
                                   "\0"s,
                                   "nul",
                                   "nullx",
                                   "truefalse",
                                   "01",
                                   "-",
                                   "1.",
                                   ".5",
                                   "1e",
                                   "1e+",
                                   "+1",
                                   "0x1",
                                   "NaN",
                                   "Infinity",
                                   "'a'",
                                   "\"a",
                                   "\"\\\"",
                                   "\"\\x\"",
                                   "\"\\u12\"",
                                   "\"\\u12g4\"",
                                   "\"a\" \"b\"",
                                   "1 2",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   "[1 2]",
                                   "[1,]",
                                   "[,1]",
                                   "[1]]",
                                   "[1]x",
                                   "[1][2]",
                                   "[}",
                                   "{]",
                                   "{\"a\"}",
                                   "{\"a\":}",
                                   "{\"a\" 1}",
                                   "{\"a\":1,}",
                                   "{a:1}",
                                   "{1:2}",
                                   "{\"a\":1}{",
                                   "[1,[2}",
                                   "[\"a\x01\"]",
                                   "[\"a\nb\"]",
                                   "[\"a\"b]",
                                   "[01]",
                                   "[1e999]",
                                   "[-1e999]",
                                   "[\"\xff\"]",
                                   "\"\xc3\"",
                                   "[\"\xed\xa0\x80\"]",
                                   "{}\0"s,
                                   "[1]\0"s,
                                   "\xef\xbb\xbf[1]",
                                   "[1]//c",
                                   "[tru]",
                                   "[nulll]",
                                   "[-]",
                                   "{\"a\":1 \"b\":2}",
                                   "[\"\\"};
  for (const std::string& document : documents) {
    EXPECT_EQ(refusal(document).find("accepted"), std::string::npos) << document << " " << refusal(document);
  }
  EXPECT_EQ(refusal("[1, 2, x]"), "invalid JSON at byte 7: a value cannot start here");
}

TEST(JsonParse, EveryTruncationOfAnObjectIsRefused) {
  std::string document = R"({"k":[1,-2.5e3,"\ud83d\ude00é\n",{"n":null,"t":true}],"":{}})";
  ASSERT_TRUE(parse_json(document).ok());
  for (size_t n = 0; n < document.size(); ++n) EXPECT_FALSE(parse_json(document.substr(0, n)).ok()) << n;
}

TEST(JsonParse, EverySingleByteChangeIsSafe) {
  std::string document = R"({"k":[1,-2.5e3,"\ud83d\ude00é\n",{"n":null}],"":{}} )";
  for (size_t at = 0; at < document.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = document;
      changed[at] = static_cast<char>(byte);
      if (auto value = parse_json(changed); value.ok()) {
        auto again = parse_json(dump_json(*value));
        ASSERT_TRUE(again.ok()) << changed;
        EXPECT_EQ(*again, *value);
      }
    }
  }
}

TEST(JsonParse, LoneSurrogatesBecomeReplacementCharacters) {
  EXPECT_EQ(parse_json(R"(["\ud800","\udc00x","\ud83d\ud83d\ude00","\ud800\n","\uDBFF\uDFFF"])").value(),
            Json(JsonArray{"\ufffd", "\ufffdx", "\ufffd\U0001f600", "\ufffd\n", "\U0010ffff"}));
}

TEST(JsonParse, NulSurvivesInStringsAndKeys) {
  auto value = parse_json(R"({"a\u0000b":"\u0000"})");
  ASSERT_TRUE(value.ok());
  const auto& [key, text] = *value->as_object().begin();
  EXPECT_EQ(key, std::string("a\0b", 3));
  EXPECT_EQ(text.as_string(), std::string(1, '\0'));
}

TEST(JsonParse, RepeatedKeyKeepsFirstPositionAndLastValue) {
  EXPECT_EQ(dump_json(parse_json(R"({"a":1,"b":2,"a":3})").value()), R"({"a": 3, "b": 2})");
}

TEST(JsonParse, BigIntegersKeepTheirDigits) {
  auto value = parse_json("[9223372036854775808, 12345678901234567890123]");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->as_array()[0].as_big_integer(), "9223372036854775808");
  EXPECT_EQ(value->as_array()[1].as_big_integer(), "12345678901234567890123");
  EXPECT_EQ(value->as_array()[0], Json(uint64_t{1} << 63));
}

TEST(JsonParse, DepthAndCountAreLimited) {
  auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(128)).ok());
  EXPECT_NE(refusal(nested(129)).find("limit of 128"), std::string::npos);
  EXPECT_NE(refusal(std::string(5'000'000, '[')).find("invalid JSON"), std::string::npos);
  EXPECT_NE(refusal(nested(2'000'000)).find("limit of 128"), std::string::npos);
  EXPECT_NE(refusal(nested(2'000'000), {.depth = 1u << 30}).find("limit of 1000"), std::string::npos);
  EXPECT_TRUE(parse_json("[1,2,3]", {.values = 4}).ok());
  EXPECT_NE(refusal("[1,2,3,4]", {.values = 4}).find("more than 4 values"), std::string::npos);
  std::string bomb;
  for (int i = 0; i < 200'000; ++i) bomb += "{\"a\":";
  EXPECT_NE(refusal(bomb).find("invalid JSON"), std::string::npos);
}

// With a scan per key this would need 5 * 10^11 comparisons and run into the test's time limit.
TEST(JsonParse, AMillionMembersTakeLinearTime) {
  std::string document = "{";
  for (int i = 0; i < 1'000'000; ++i) document += fmt::format("\"k{}\":{},", i % 999'999, i);
  document.back() = '}';
  auto value = parse_json(document);
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(value->as_object().size(), 999'999u);
  EXPECT_EQ(value->find("k0")->as_integer(), 999'999);
  EXPECT_EQ(value->as_object().begin()->first, "k0");
}

TEST(JsonObject, FindsSetsAndErasesAcrossTheIndexThreshold) {
  JsonObject object;
  for (int i = 0; i < 40; ++i) object.set(std::to_string(i), i);
  EXPECT_TRUE(object.erase("3"));
  EXPECT_FALSE(object.erase("3"));
  for (int i = 39; i > 10; --i) EXPECT_TRUE(object.erase(std::to_string(i)));
  ASSERT_EQ(object.size(), 10u);
  EXPECT_EQ(object.find("3"), nullptr);
  EXPECT_EQ(object.find("10")->as_integer(), 10);
  for (int i = 0; i < 40; ++i) object[std::to_string(i)] = i + 100;
  EXPECT_EQ(object.size(), 40u);
  EXPECT_EQ(object.find("3")->as_integer(), 103);
  EXPECT_EQ(object.begin()->first, "0");
}

TEST(Json, EqualityIsByValue) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_FALSE(Json(1) == Json(true));
  EXPECT_FALSE(Json((int64_t{1} << 53) + 1) == Json(9007199254740992.0));
  EXPECT_EQ(Json(uint64_t{1} << 63), Json(9223372036854775808.0));
  EXPECT_FALSE(Json("1") == Json(1));
  EXPECT_EQ(parse_json(R"({"a":1,"b":[2]})").value(), parse_json(R"({"b":[2.0],"a":1})").value());
}

TEST(Json, CopiesAreDeepAndSafeWithinOneValue) {
  Json value = parse_json(R"({"a":{"b":"text long enough to live on the heap"}})").value();
  Json copy = value;
  value = *value.find("a")->find("b");
  EXPECT_EQ(value.as_string(), "text long enough to live on the heap");
  EXPECT_EQ(copy.find("a")->find("b")->as_string(), value.as_string());
}

}  // namespace
}  // namespace godwit
