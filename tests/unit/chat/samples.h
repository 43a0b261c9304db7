// Outputs a model may write: each transition of api spec §3.1 at least once.
#pragma once

#include <string_view>

#include "parse_harness.h"

namespace godwit::chat {

struct Sample {
  std::string_view text;
  ParserOptions options;
  EndReason reason = EndReason::stop;
};

inline std::vector<Sample> samples() {
  const ParserOptions think = thinking_with_tools();
  const ParserOptions tools = with_tools();
  const ParserOptions bare{.thinking = true};
  ParserOptions stop = tools;
  stop.stop = {"END", "\n\nUser:", "ü!"};
  ParserOptions shown = stop;
  shown.include_stop = true;
  ParserOptions single = think;
  single.parallel_tool_calls = false;
  ParserOptions none = tools;
  none.tool_choice = ToolChoice::none;
  ParserOptions named = tools;
  named.tool_choice = ToolChoice::named;
  constexpr auto length = EndReason::length;
  return {
      // Text, reasoning and their ends
      {"", bare},
      {"", tools, length},
      {"plain answer<|user|>", {}},
      {"<tool_call>now</tool_call> is text without tools</arg_key>", {}},
      {"thoughts 思考 🧠</think>Antwort: ü<|user|>", bare},
      {"never closed ✓<|endoftext|>", bare},
      {"never closed and cut", bare, length},
      {"never closed <|observation|>", think},
      {"<think>echo</think></think>twice<think>again</think> end", think},
      {"a</think>b<think>c", bare},
      {"a</think> \n <think>c", think},
      {"</think>\n\n", think},
      {" \n", tools},
      {"literal < and <tool and </ and <|us", tools},
      {"e\xCC\x81 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80 joined</think>\xEF\xBF\xBD", bare},
      // Calls
      {"</think><tool_call>now</tool_call><|observation|>", think},
      {"inside <tool_call>now</tool_call></think>after", think},
      {"text before\n<tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich "
       "\"x\"\n</arg_value></tool_call>",
       tools},
      {"<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>A</arg_value>\n<arg_key>days</"
       "arg_key>\n<arg_value>3"
       "</arg_value>\n</tool_call>\n",
       tools},
      {"<tool_call>now</tool_call>\n<tool_call>get</tool_call> then text<tool_call>now</tool_call>", tools},
      {"<tool_call>write<arg_key>path</arg_key><arg_value>/tmp/ä</arg_value><arg_key>lines</"
       "arg_key><arg_value>[1, \"2\"]"
       "</arg_value><arg_key>meta</arg_key><arg_value>{'k': "
       "True}</arg_value><arg_key>mode</arg_key><arg_value>null"
       "</arg_value><arg_key>size</arg_key><arg_value>1e3</arg_value><arg_key>other</arg_key><arg_value>x</"
       "arg_value>"
       "</tool_call>",
       tools},
      {"<tool_call>write<arg_key>text</arg_key><arg_value></arg_value><arg_key>size</arg_key><arg_value></"
       "arg_value>"
       "</tool_call>",
       tools},
      {"<tool_call>write<arg_key>text</arg_key><arg_value>tags <tool_call> "
       "<think></think><arg_key></arg_key><arg_value>"
       " kept</arg_value></tool_call>",
       tools},
      {"<tool_call>write<arg_key>text</arg_key><arg_value>control \x01 \x7f \\ \" / "
       "\t</arg_value></tool_call>",
       tools},
      // Names
      {"<tool_call>get_weather</arg_value></tool_call>", tools},
      {"<tool_call> now \n</tool_call>", tools},
      {"<tool_call></tool_call>kept", tools},
      {"<tool_call>now<tool_call>get</tool_call>", tools},
      {"see <tool_call>nothing</tool_call> and "
       "<tool_call>what<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>.",
       tools},
      {"rehearsal <tool_call>nothing</tool_call> goes on</think>done", think},
      {"gives up <tool_call>now</think>and answers", think},
      {"reopens <tool_call>now<think>and thinks</think>.", tools},
      {"<tool_call>unknown", tools},
      {"<tool_call>now", tools},
      {"<tool_call>get_wea", tools, length},
      {"thinking <tool_call>get_wea", think, length},
      {"stray </tool_call></arg_key><arg_value>tags</arg_value>", tools},
      // Missing tags
      {"<tool_call>get_weather<arg_key>city</arg_key>Oslo</arg_value></tool_call>", tools},
      {"<tool_call>get_weather<arg_key>city<arg_value>Oslo</arg_value></tool_call>", tools},
      {"<tool_call>get_weather<arg_key>city</arg_key></arg_value><arg_key>days</arg_key></tool_call>", tools},
      {"<tool_call>get_weather<arg_key>x<arg_key>days</arg_key><arg_key>city</arg_key><arg_value>Rom</"
       "tool_call>",
       tools},
      {"<tool_call>get_weather<arg_key>days</arg_key><arg_value>3</arg_value><tool_call>now</tool_call>",
       tools},
      {"<tool_call>get_weather<arg_key>days</arg_key><arg_value>3</arg_value> noise </arg_key></think>after",
       think},
      {"<tool_call>get_weather<arg_key>city</arg_key><arg_value>a</arg_value><arg_key>city</"
       "arg_key><arg_value>b"
       "</arg_value></tool_call>",
       tools},
      {"<tool_call>get_weather<arg_key>city<think></arg_value></think></tool_call>", tools},
      // Cut calls
      {"<tool_call>get_weather<arg_key>ci", tools, length},
      {"<tool_call>get_weather<arg_key>city</arg_key>", tools, length},
      {"<tool_call>get_weather<arg_key>city</arg_key><arg_value>", tools, length},
      {"<tool_call>get_weather<arg_key>city</arg_key><arg_value>Reykja\xC3", tools, length},
      {"<tool_call>get_weather<arg_key>days</arg_key><arg_value>12", tools, length},
      {"<tool_call>get_weather<arg_key>days</arg_key><arg_value>12</arg_value>", tools, length},
      {"<tool_call>get_weather<arg_key>days</arg_key><arg_value>12<|observation|>", tools},
      {"<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rom<|observation|>", tools},
      {"<tool_call>now</tool_call>and <tool_call>write<arg_key>text</arg_key><arg_value>x", tools, length},
      // Stop strings and choices
      {"one EN two END three", stop},
      {"one EN two END three", shown},
      {"\n\nUse\n\nUser: x", stop},
      {"für ü! x", stop},
      {"held EN<tool_call>now</tool_call>D more", stop},
      {"<tool_call>write<arg_key>text</arg_key><arg_value>END</arg_value></tool_call>EN", stop},
      {"<tool_call>nEND</tool_call>", stop},
      {"a</think><tool_call>now</tool_call><tool_call>get</tool_call>", single},
      {"<tool_call>now</tool_call>", none},
      {"<tool_call>now</tool_call>", named},
  };
}

}  // namespace godwit::chat
