// What a request says about thinking, in all the dialects clients speak (api spec §2.10), as template
// variables and one switch. How the output is read never follows from these, only from the rendered ids
// (prompt.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace godwit::chat {

struct Effort {
  bool off = false;
  std::string variable;  // the template's reasoning_effort: "low" or "high"; empty = unset, which renders Max
};

// minimal, low → low; medium, high → high; xhigh, max → unset; none → off. Anything else is invalid_request
// naming `field`: the template would silently run it at Max.
Result<Effort> parse_effort(std::string_view value, std::string_view field);

struct Thinking {
  bool off = false;               // close_thinking() the prompt (design §12)
  int64_t budget = -1;            // ids that may be thought before </think> is forced; -1: any number
  bool include_reasoning = true;  // false: reasoning is generated and counted but not sent
  // chat_template_kwargs with reasoning_effort mapped, enable_thinking and clear_thinking as the switches
  // say.
  JsonObject template_kwargs;
};

// `body`: a request object. Reads chat_template_kwargs, reasoning_effort, reasoning{effort,enabled,exclude},
// output_config.effort, enable_thinking, thinking{type,clear_thinking,budget_tokens}, reasoning.max_tokens,
// thinking_token_budget, max_reasoning_tokens, reasoning_budget, include_reasoning; also inside a literal
// "extra_body". Explicit kwargs win; the server's default effort ("" = none) comes last. Errors:
// invalid_request with the field's path.
Result<Thinking> resolve_thinking(const Json& body, std::string_view default_effort);

}  // namespace godwit::chat
