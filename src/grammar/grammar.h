// Grammar: what one request's output must look like (api spec §3.9, §4.5 response_format), compiled.
//
// Compile off the engine thread: it may take milliseconds, bounded by the limits below. A Grammar is
// immutable to its users and may serve any number of requests (matcher.h) on any threads: what it learns
// while they run, it shares between them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/graph.h"
#include "grammar/state.h"
#include "grammar/token_index.h"

namespace godwit::grammar {

struct ToolSpec {
  std::string name;
  Json parameters;          // JSON Schema; null: no arguments are declared, any may come
  bool constrained = true;  // false: any arguments (tool_choice auto without `strict`)
};

// The content, the tool calls, or one of both: content none + tools = calls are required (tool_choice
// required, or named when there is one tool); any_text + tools = free text, then calls if any (strict tools
// under auto); another content + tools = either.
struct GrammarSpec {
  enum class Content : uint8_t { none, any_text, json_object, json_schema, regex, choice };
  Content content = Content::none;
  Json schema;                       // json_schema
  std::string regex;                 // regex: the whole content
  std::vector<std::string> choices;  // choice
  std::vector<ToolSpec> tools;
  bool parallel_calls = true;  // false: one call
};

class Grammar {
 public:
  Grammar(Graph graph, std::shared_ptr<const TokenIndex> index);

  const TokenIndex& index() const { return *index_; }
  // Whether a call may open the output: then <tool_call> also ends reasoning (api spec §3.2).
  bool starts_with_call() const { return starts_with_call_; }

 private:
  friend class Matcher;

  // States and masks that matchers have reached. When it is full a new one takes its place, and each matcher
  // moves its few states over when it runs next.
  struct Memory {
    Memory(const Graph& graph, size_t mask_words) : states(graph), words(mask_words) {}
    bool full() const;

    States states;
    size_t words;
    std::vector<std::vector<uint32_t>> masks;
    std::vector<uint32_t> mask_of;  // [states]; kNone: not made yet
  };
  std::span<const uint32_t> mask(Memory& memory, StateId state) const;
  void walk(States& states, StateId state, std::vector<uint32_t>& mask) const;

  Graph graph_;
  std::shared_ptr<const TokenIndex> index_;
  bool starts_with_call_ = false;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Memory> memory_;  // never null; guarded like what it holds
};

// Errors: invalid_request. The message names the keyword, what is supported, and its place as a JSON pointer
// into the schema
// ("#/properties/a"), or the limit that was passed; `field` is "schema", "regex", "choice" or
// "tools[i].parameters".
Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec,
                                               std::shared_ptr<const TokenIndex> index);

}  // namespace godwit::grammar
