// Templates that cost too much or are wrong end with an error that names the line; nothing crashes or hangs.
#include <gtest/gtest.h>

#include <chrono>

#include "jinja_test_support.h"

namespace godwit::chat::jinja {
namespace {

std::string repeated(std::string_view piece, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += piece;
  return out;
}

// The render fails with these words.
void expect_error(std::string_view source, std::string_view words, const Limits& limits = {}) {
  const std::string out = render(source, "{}", limits);
  EXPECT_TRUE(out.starts_with("error: t:")) << out.substr(0, 200);
  EXPECT_NE(out.find(words), std::string::npos) << out.substr(0, 200);
}

TEST(JinjaLimits, NestingOfTheSource) {
  expect_error("{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", "deeper than");
  expect_error("{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}", "deeper than");
  expect_error("{{ " + repeated("not ", 100'000) + "1 }}", "deeper than");
  expect_error("{{ " + repeated("- ", 100'000) + "1 }}", "deeper than");
  expect_error("{{ 1" + repeated(" + 1", 100'000) + " }}", "deeper than");
  expect_error("{{ x" + repeated("[0]", 100'000) + " }}", "deeper than");
  expect_error("{{ x" + repeated("|list", 100'000) + " }}", "deeper than");
  expect_error(repeated("{% if 1 %}", 50'000), "deeper than");
  expect_error("{{ 1" + repeated(" if 1 else 1", 80'000) + " }}", "deeper than");
}

TEST(JinjaLimits, RecursionOfMacrosAndValues) {
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deeper than 800 levels");
  expect_error("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "deeper than");
  expect_error("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}", "deeper than");
  expect_error(
      "{% set a = [] %}{% set _ = a.append(a) %}{% set b = [] %}{% set _ = b.append(b) %}{{ a == b }}",
      "nested deeper");
  expect_error("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deeper than");
}

TEST(JinjaLimits, Memory) {
  Limits limits;
  limits.heap_bytes = 16 << 20;
  expect_error("{{ 'x' * 10**9 }}", "longer than");
  expect_error("{{ [1] * 10**9 }}", "longer than");
  expect_error("{{ range(10**9) | list }}", "range() of 1000000000 items, the limit is 100000");
  expect_error("{{ range(-9223372036854775807, 9223372036854775807) }}", "range() of");
  expect_error(
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}",
      "bytes of memory", limits);
  expect_error(
      "{% set ns = namespace(l=[1, 2]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "template needs more than", limits);
  expect_error("{{ '%9999999999d' % 1 }}", "exceeds 4096");
  expect_error("{{ 'a' | indent(10**9) }}", "exceeds 1024");
}

TEST(JinjaLimits, StepsAndOutput) {
  Limits limits;
  limits.steps = 1000;
  limits.output_bytes = 100;
  expect_error("{% for i in range(900) %}{{ i }}{% endfor %}", "more than 1000 steps", limits);
  limits.steps = 100'000;
  expect_error("{% for i in range(900) %}{{ i }}{% endfor %}", "output is longer than 100 bytes", limits);
  limits.source_bytes = 10;
  expect_error("{{ 'longer than that' }}", "the limit is 10", limits);
}

TEST(JinjaLimits, NestedLoopsEndSoon) {
  const auto start = std::chrono::steady_clock::now();
  expect_error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "template");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(JinjaLimits, Integers) {
  expect_error("{{ 9223372036854775807 + 1 }}", "64-bit");
  expect_error("{{ 2 ** 64 }}", "64-bit");
  expect_error("{{ (-9223372036854775807 - 1) // -1 }}", "64-bit");
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(render("{{ 12345678901234567890123 }}"), "12345678901234567890123");
}

TEST(JinjaLimits, ErrorsNameTheLineAndTheMatter) {
  EXPECT_EQ(render("a\nb {{ x.y }}"), "error: t:2: 'x' is undefined");
  EXPECT_EQ(render("{% set d = {} %}\n\n{{ d.args.items() }}"),
            "error: t:3: 'dict object' has no attribute 'args'");
  EXPECT_EQ(render("{{ 'text'.items() }}"), "error: t:1: 'str object' has no attribute 'items'");
  EXPECT_EQ(render("\n{% nosuch %}"), "error: t:2: unknown tag 'nosuch'");
  EXPECT_EQ(render("\n\n{{ 1 +"), "error: t:3: tag is not closed before the end of the template");
  EXPECT_EQ(render("{% if x %}"), "error: t:1: the template ends without 'endif'");
  EXPECT_EQ(render("{{ raise_exception('no ' + 'way') }}"), "error: t:1: no way");
  EXPECT_EQ(render("\xff"), "error: t:1: the template is not valid UTF-8");
}

}  // namespace
}  // namespace godwit::chat::jinja
