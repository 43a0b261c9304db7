// The rules of api spec §2.12 (c), whose expected results are those of Python's jinja2 in the environment of
// §2.1.
#include <gtest/gtest.h>

#include "jinja_test_support.h"

namespace godwit::chat::jinja {
namespace {

constexpr std::string_view kContext =
    R"({"given": "g", "s": "\"\\/<&'\u2028\u007f\n\b\u0001\u00e9\ud83d\ude42", "w": "\u2003\u001c a \u00a0"})";

void expect_render(std::string_view source, std::string_view expected) {
  EXPECT_EQ(render(source, kContext), expected) << source;
}

TEST(JinjaSemantics, Scoping) {
  expect_render("{% for i in [1,2,3] %}{% if loop.first %}{% set v = i %}{% endif %}[{{ v }}]{% endfor %}",
                "[1][][]");
  expect_render("{% for i in [1] %}{% set v = i %}{% endfor %}{{ v is defined }}", "False");
  expect_render(
      "{% set ns = namespace(n=0) %}{% for i in [1,2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
      "3");
  expect_render(
      "{% set given = given if given is defined else 'd' %}{% set other = other if other is defined else 'd' "
      "%}{{ given }}{{ other }}",
      "gd");
  expect_render("{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "2");
}

TEST(JinjaSemantics, Macros) {
  expect_render(
      "{% macro a() %}{{ b() }}{{ late }}{% endmacro %}{% macro b() %}B{% endmacro %}{% set late = 1 %}{{ "
      "a() }}",
      "B1");
  expect_render(
      "{% macro m() %}{{ loop is defined }}{{ i is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% "
      "endfor %}",
      "FalseFalse");
  expect_render(
      "{% macro m(a, b='d') %}{{ a is defined }}{{ b }}{% endmacro %}{{ m() }}{{ m(1, 2) }}{{ m(b=3) }}",
      "FalsedTrue2False3");
  expect_render("{% macro m() %} {% endmacro %}{{ m() == ' ' }}{{ 'true' if m() else 'false' }}", "Truetrue");
}

TEST(JinjaSemantics, Access) {
  expect_render("{{ 'abc'.0 }}{{ [{'k': 5}].0.k }}{{ {}.a is defined }}", "a5False");
  expect_render("{{ '' and ''.0.k }}|{{ {} and {}.0.k }}", "|{}");
  expect_render(
      "{% for k, v in {'items': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'name': 'n'}.name }}{{ "
      "{'get': 1}['get'] }}",
      "items1a2n1");
  expect_render("{{ [1,2][5] is defined }}{{ [1,2,3][2:9] }}{{ 'abc'[3:] }}|{{ [1,2][-1] }}", "False[3]|2");
}

TEST(JinjaSemantics, Undefined) {
  expect_render(
      "{{ x }}|{{ 'y' if x else 'n' }}|{% for i in x %}{% endfor %}{{ x | length }}|{{ x == none }}|{{ x is "
      "iterable }}",
      "|n|0|False|True");
}

TEST(JinjaSemantics, Printing) {
  expect_render(
      "{{ none }} {{ true }} {{ 1.0 }} {{ 1e22 }} {{ 1e16 }} {{ 1000000000000000.0 }} {{ {'a': 'b'} }} {{ "
      "[1, 'x', none] }}",
      "None True 1.0 1e+22 1e+16 1000000000000000.0 {'a': 'b'} [1, 'x', None]");
  expect_render("{{ 'x' ~ 1 ~ none }}", "x1None");
}

TEST(JinjaSemantics, Tests) {
  expect_render(
      "{{ 'a' is iterable }}{{ {} is iterable }}{{ [] is iterable }}{{ 5 is iterable }}{{ 'a' is sequence "
      "}}{{ {} is sequence }}{{ true is number }}",
      "TrueTrueTrueFalseTrueTrueTrue");
}

TEST(JinjaSemantics, Defaults) {
  expect_render(
      "{{ x | default('d') }}{{ none | default('d') }}{{ none | default('d', true) }}{{ '' | default('e', "
      "true) }}",
      "dNonede");
}

TEST(JinjaSemantics, Logic) {
  expect_render(
      "{{ 0 or 'a' }}{{ 1 and 'b' }}{{ '' and 'c' }}|{{ 'a' if false }}|{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}",
      "ab||TrueFalse");
}

TEST(JinjaSemantics, Json) {
  expect_render("{{ {'b': [1, 1.0, true, none], 'a': {}} | tojson }}",
                "{\"b\": [1, 1.0, true, null], \"a\": {}}");
  expect_render("{{ s | tojson }} {{ s | tojson(ensure_ascii=True) }}",
                "\"\\\"\\\\/<&'\342\200\250\177\\n\\b\\u0001é🙂\" "
                "\"\\\"\\\\/<&'\\u2028\\u007f\\n\\b\\u0001\\u00e9\\ud83d\\ude42\"");
  expect_render("{{ {'a': [], 'b': {}, 'c': [1]} | tojson(indent=2) }}",
                "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1\n  ]\n}");
  expect_render("{{ [12345678901234567890123, 1e22, -0.0] | tojson }}",
                "[12345678901234567890123, 1e+22, -0.0]");
}

TEST(JinjaSemantics, Strings) {
  expect_render("{{ ' a  b '.split() }}{{ 'a,b'.split(',')[-1] }}{{ 'ab'.split('x')[-1] }}", "['a', 'b']bab");
  expect_render("[{{ w.strip() }}][{{ 'xyax'.strip('xy') }}]", "[a][a]");
  expect_render("{{ 'ßEN' | capitalize }} {{ 'éCOLE' | capitalize }}", "Ssen École");
  expect_render("{{ 'ЖУК'.lower() }} {{ 'aé日🙂' | length }} {{ 'aé日🙂'[::-1] }}",
                "жук 4 🙂日éa");
}

TEST(JinjaSemantics, Numbers) {
  expect_render("{{ 7/2 }} {{ 2/1 }} {{ 7//2 }} {{ -7//2 }} {{ -7 % 3 }} {{ 2 ** 3 }}", "3.5 2.0 3 -4 2 8");
}

TEST(JinjaSemantics, WhiteSpace) {
  expect_render("a\n  {% if true %}\n  b\n  {% endif %}\nc {{ 1 }}\nd\n", "a\n  b\nc 1\nd");
  expect_render("a\n  {%+ if true %}x{% endif %}\n", "a\n  x");
  expect_render("a {#- c -#} b\n{# d #}\ne", "ab\ne");
}

TEST(JinjaSemantics, Loops) {
  expect_render("{% for x in [1,2,3,4] if x is even %}{{ loop.index0 }}{{ x }}{{ loop.last }}{% endfor %}",
                "02False14True");
  expect_render("{{ {'b': 1, 'A': 2} | dictsort }}", "[('A', 2), ('b', 1)]");
  expect_render(
      "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif "
      "%}{{ i }}{% endfor %}{% for i in [] %}{% else %}e{% endfor %}",
      "023e");
  expect_render(
      "{% for m in [1,2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.revindex }}{% "
      "endfor %}",
      "FalseTrue2TrueFalse1");
}

TEST(JinjaSemantics, Environment) {
  expect_render(
      "{% generation %}g{% endgeneration %}{{ strftime_now('%Y') | length }}{{ range(2) | list }}{{ "
      "dict(a=1) }}",
      "g4[0, 1]{'a': 1}");
  expect_render(
      "{% filter upper %}a{% endfilter %}{% set b | trim %} x {% endset %}{{ b }}{% raw %}{{ r }}{% endraw "
      "%}",
      "Ax{{ r }}");
}

TEST(JinjaSemantics, WhatMustFail) {
  for (const std::string_view source :
       {"{{ 'x' + 1 }}", "{{ x.y }}", "{{ x() }}", "{{ x + 'a' }}", "{{ ''.0.k }}", "{{ {}.0.k }}",
        "{% if false %}{% macro m() %}{% endmacro %}{% endif %}{{ m() }}", "{{ none | length }}",
        "{{ 'a' < 1 }}", "{{ 1 in 'a' }}", "{{ 1 / 0 }}"}) {
    EXPECT_TRUE(render(source).starts_with("error: t:1: ")) << source;
  }
}

// append and pop are forbidden by transformers' sandbox, but published templates use them.
TEST(JinjaSemantics, AppendAndPop) {
  expect_render("{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}{{ l.pop() }}{{ l }}", "[1, 2]2[1]");
  EXPECT_TRUE(render("{% set l = [1] %}{{ l.insert(0, 1) }}").starts_with("error: t:1: "));
}

}  // namespace
}  // namespace godwit::chat::jinja
