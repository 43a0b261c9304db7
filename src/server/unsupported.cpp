#include "server/unsupported.h"

#include <array>

namespace godwit::server {

void refuse_unsupported(Fields& fields) {
  static constexpr std::array<std::string_view, 10> kFields = {
      "guided_grammar",  "structural_tag",   "bad_words",       "allowed_token_ids", "typical_p",
      "prompt_logprobs", "return_token_ids", "use_beam_search", "logits_processors", "resume"};
  for (const std::string_view key : kFields) {
    const Json* value = fields.any(key);
    // false, 0 and empty say "do not": nothing is lost by accepting them.
    const bool off = value && ((value->is_bool() && !value->as_bool()) ||
                               (value->is_array() && value->as_array().empty()) || (*value == Json(0)));
    if (value && !off) fields.refuse(key, "is not supported");
  }
}

}  // namespace godwit::server
