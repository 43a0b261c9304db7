// The public failures of api_cases.md that template engines caused, by their numbers.
#include <gtest/gtest.h>

#include "jinja_test_support.h"

namespace godwit::chat::jinja {
namespace {

// A mapping's items, as templates write earlier tool calls with them; also with a key of that name.
TEST(TemplateCase, C68_C69_ItemsOfAMappingAreWalked) {
  const char* const source =
      "{% for m in messages %}{% for call in m.tool_calls %}<tool_call>{{ call.function.name }}"
      "{% for k, v in call.function.arguments.items() %}<arg_key>{{ k }}</arg_key><arg_value>"
      "{{ v if v is string else v | tojson(ensure_ascii=False) }}</arg_value>{% endfor %}</tool_call>"
      "{% endfor %}{% endfor %}";
  EXPECT_EQ(render(source, R"({"messages":[{"tool_calls":[{"function":{"name":"f","arguments":{"items":"x",)"
                           R"("n":{"ä":[1,true,null]}}}}]}]})"),
            "<tool_call>f<arg_key>items</arg_key><arg_value>x</arg_value><arg_key>n</arg_key><arg_value>"
            "{\"ä\": [1, true, null]}</arg_value></tool_call>");
  EXPECT_EQ(render(source, R"({"messages":[{"tool_calls":[{"function":{"name":"f","arguments":{}}}]}]})"),
            "<tool_call>f</tool_call>");
}

// The expression that was "Expected comma in tuple": a condition with `and not` and a method call, inline.
TEST(TemplateCase, C70_AConditionInlineWithAndNotAndAMethodCallIsParsed) {
  const char* const source =
      "{{ text }}{{ '/off' if (enable is defined and not enable and not text.endswith(\"/off\")) else '' }}";
  EXPECT_EQ(render(source, R"({"text":"Hi","enable":false})"), "Hi/off");
  EXPECT_EQ(render(source, R"({"text":"Hi/off","enable":false})"), "Hi/off");
  EXPECT_EQ(render(source, R"({"text":"Hi","enable":true})"), "Hi");
  EXPECT_EQ(render(source, R"({"text":"Hi"})"), "Hi");
}

// What cannot be parsed is an error at load, never another template.
TEST(TemplateCase, C70_WhatCannotBeParsedIsAnErrorWithItsLine) {
  for (const char* source :
       {"a\n{{ 'x' if }}", "a\n{% for %}", "a\n{{ (1, }}", "a\n{% wonder %}", "a\n{{ x | }}"})
    EXPECT_TRUE(render(source).starts_with("error: t:2: ")) << source << " gives " << render(source);
}

}  // namespace
}  // namespace godwit::chat::jinja
