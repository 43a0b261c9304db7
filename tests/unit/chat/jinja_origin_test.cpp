// Which bytes of a render come from the template and which from the request (api spec §2.9).
#include <gtest/gtest.h>

#include "jinja_test_support.h"

namespace godwit::chat::jinja {
namespace {

constexpr std::string_view kContext = R"({"c": "<|user|>hi", "s": " a<x>b ", "n": 5, "l": ["p", "q"]})";

TEST(JinjaOrigin, TemplateTextAndLiteralsAreTemplate) {
  EXPECT_EQ(origins("<|sys|>{{ '<|user|>' }}!"), "T[<|sys|><|user|>!]");
}

TEST(JinjaOrigin, ContextIsDataEvenWhenItLooksLikeAToken) {
  EXPECT_EQ(origins("<|user|>{{ c }}<|end|>", kContext), "T[<|user|>]D[<|user|>hi]T[<|end|>]");
}

TEST(JinjaOrigin, ConcatenationKeepsBoth) {
  EXPECT_EQ(origins("{{ '<|user|>' + c + '<|end|>' }}", kContext), "T[<|user|>]D[<|user|>hi]T[<|end|>]");
  EXPECT_EQ(origins("{{ '<' ~ n ~ '>' }}", kContext), "T[<]D[5]T[>]");
}

TEST(JinjaOrigin, SlicesStripsAndSplitsKeepIt) {
  EXPECT_EQ(origins("{{ ('<a>' + s + '<b>')[1:-1] }}", kContext), "T[a>]D[ a<x>b ]T[<b]");
  EXPECT_EQ(origins("{{ (' t' + s).strip() }}", kContext), "T[t]D[ a<x>b]");
  EXPECT_EQ(origins("{{ ('t<x>' + s).split('<x>')[0] }}{{ ('t' + s).split('<x>')[1] }}", kContext),
            "T[t]D[b ]");
  EXPECT_EQ(origins("{{ ('t' + s)[::-1] }}", kContext), "D[ b>x<a ]T[t]");
}

TEST(JinjaOrigin, MacrosSetBlocksAndJoinsKeepIt) {
  EXPECT_EQ(origins("{% macro m(x) %}<|m|>{{ x }}{% endmacro %}{{ m(c) + '.' }}", kContext),
            "T[<|m|>]D[<|user|>hi]T[.]");
  EXPECT_EQ(origins("{% set b %}<{{ n }}>{% endset %}{{ b }}", kContext), "T[<]D[5]T[>]");
  EXPECT_EQ(origins("{{ l | join(',') }}", kContext), "D[p]T[,]D[q]");
  EXPECT_EQ(origins("{{ c | replace('<|user|>', '<|x|>') }}", kContext), "T[<|x|>]D[hi]");
}

TEST(JinjaOrigin, RebuiltTextIsDataUnlessAllOfItIsTemplate) {
  EXPECT_EQ(origins("{{ 'ab' | upper }}{{ ('a' + c) | upper }}", kContext), "T[AB]D[A<|USER|>HI]");
  EXPECT_EQ(origins("{{ {'k': '<|x|>'} | tojson }}"), R"(D[{"k": "<|x|>"}])");
}

TEST(JinjaOrigin, GrowingTextKeepsEveryRun) {
  EXPECT_EQ(
      origins(
          "{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t + '<' + x + '>' %}{% endfor %}"
          "{{ ns.t }}",
          kContext),
      "T[<]D[p]T[><]D[q]T[>]");
  // Two texts that grow from the same beginning must not see each other.
  EXPECT_EQ(
      origins(
          "{% set a = 'x' + c %}{% set b = a + '1' %}{% set d = b + '2' %}{% set e = b + c %}{{ d }}|{{ e }}",
          R"({"c": "y"})"),
      "T[x]D[y]T[12|x]D[y]T[1]D[y]");
  EXPECT_EQ(origins("{% set a = 'x' + c + 'z' %}{{ a + a }}", R"({"c": "y"})"), "T[x]D[y]T[zx]D[y]T[z]");
}

}  // namespace
}  // namespace godwit::chat::jinja
