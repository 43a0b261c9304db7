#include "server/unsupported.h"

#include <array>

namespace godwit::server {

void refuse_unsupported(Fields& fields) {
  static constexpr std::array<std::string_view, 15> kFields = {
      "structured_outputs", "guided_json",           "guided_regex",    "guided_choice",
      "guided_grammar",     "structural_tag",        "bad_words",       "allowed_token_ids",
      "typical_p",          "thinking_token_budget", "prompt_logprobs", "return_token_ids",
      "use_beam_search",    "logits_processors",     "resume"};
  for (const std::string_view key : kFields) {
    const Json* value = fields.any(key);
    // false, 0 and empty say "do not": nothing is lost by accepting them.
    const bool off = value && ((value->is_bool() && !value->as_bool()) ||
                               (value->is_array() && value->as_array().empty()) || (*value == Json(0)));
    if (value && !off) fields.refuse(key, "is not supported yet");
  }
  if (const Json* format = fields.object("response_format")) {
    Fields inner(*format, "response_format");
    const std::string* type = inner.string("type");
    if (!type && !inner.error()) inner.refuse("type", "is required");
    if (type && *type != "text") {
      inner.refuse("type", fmt::format("{} is not supported yet; only \"text\" is", describe(Json(*type))));
    }
    if (inner.error()) fields.keep(*inner.error());
  }
}

}  // namespace godwit::server
