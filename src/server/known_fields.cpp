#include "server/known_fields.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string>

#include "base/log.h"
#include "server/fields.h"

namespace godwit::server {
namespace {

constexpr std::array kRead = std::to_array<std::string_view>({
    "add_generation_prompt",
    "best_of",
    "cache_salt",
    "chat_template_kwargs",
    "continue_final_message",
    "echo",
    "enable_thinking",
    "frequency_penalty",
    "function_call",
    "functions",
    "guided_choice",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_reasoning",
    "include_stop_str_in_output",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_reasoning_tokens",
    "max_tokens",
    "messages",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "output_config",
    "parallel_tool_calls",
    "presence_penalty",
    "priority",
    "prompt",
    "reasoning",
    "reasoning_budget",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "seed",
    "skip_special_tokens",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "structured_outputs",
    "temperature",
    "thinking",
    "thinking_token_budget",
    "timeout_ms",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
});

// They say "do not" or say nothing that an answer depends on; where they ask for more they are refused by
// name.
constexpr std::array kIgnored = std::to_array<std::string_view>({
    "add_special_tokens", "allowed_token_ids", "bad_words",  "chat_template",  "documents",
    "guided_grammar",     "logits_processors", "metadata",   "modalities",     "prediction",
    "prompt_cache_key",   "prompt_logprobs",   "request_id", "resume",         "return_token_ids",
    "safety_identifier",  "service_tier",      "store",      "structural_tag", "suffix",
    "typical_p",          "use_beam_search",   "user",       "verbosity",      "web_search_options",
});

static_assert(std::is_sorted(kRead.begin(), kRead.end()) && std::is_sorted(kIgnored.begin(), kIgnored.end()));

constexpr size_t kMostReported = 64;  // names kept and lines written since start

}  // namespace

bool is_known_field(std::string_view name) {
  return std::binary_search(kRead.begin(), kRead.end(), name) ||
         std::binary_search(kIgnored.begin(), kIgnored.end(), name);
}

void report_unknown_fields(const Json& body, std::string_view route) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> reported;
  for (const auto& [name, value] : body.as_object()) {
    if (is_known_field(name)) continue;
    {
      const std::lock_guard lock(mutex);
      if (reported.size() >= kMostReported || !reported.insert(name.substr(0, 256)).second) continue;
    }
    log_warn("{}: the field {} is not known and was ignored; it is reported once", route,
             describe(Json(name)));
  }
}

}  // namespace godwit::server
