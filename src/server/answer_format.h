// What the answer's text must look like, in whatever dialect it was said (docs/structured_output.md).
#pragma once

#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "server/fields.h"

namespace godwit::server {

struct AnswerFormat {
  using Content = grammar::GrammarSpec::Content;
  Content content = Content::any_text;  // any_text: no rule
  Json schema;                          // json_schema
  std::string regex;                    // regex
  std::vector<std::string> choices;     // choice
  std::string field;                    // where it was said: "response_format.json_schema.schema"
};

// OpenAI's response_format and vLLM's structured_outputs, guided_json, guided_regex and guided_choice. More
// than one of them is a contradiction. Refusals are kept in `fields`; a schema is checked when it is
// compiled.
AnswerFormat read_answer_format(Fields& fields);

}  // namespace godwit::server
