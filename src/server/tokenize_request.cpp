#include "server/tokenize_request.h"

#include <fmt/format.h>

#include "server/chat_plan.h"
#include "server/fields.h"

namespace godwit::server {

Result<Json> tokenize_text(const ServingModel& model, const HttpRequest& request) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  Fields fields(body, "");
  std::vector<int32_t> ids;
  if (fields.has("messages")) {
    GODWIT_ASSIGN(ids, chat_prompt_ids(model, body));
  } else {
    const std::string* text = fields.has("prompt") ? fields.string("prompt") : fields.string("content");
    if (fields.error()) return *fields.error();
    if (!text) return make_error(ErrorCode::invalid_request, "prompt", "prompt or messages is required");
    GODWIT_ASSIGN(ids, model.tokenizer->encode(*text));
  }
  JsonArray tokens(ids.begin(), ids.end());
  return Json::object({{"count", static_cast<int64_t>(ids.size())},
                       {"max_model_len", model.service->info().context},
                       {"tokens", std::move(tokens)}});
}

Result<Json> detokenize_ids(const ServingModel& model, const HttpRequest& request) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  Fields fields(body, "");
  const JsonArray* tokens = fields.array("tokens", 4'000'000);
  if (fields.error()) return *fields.error();
  if (!tokens) return make_error(ErrorCode::invalid_request, "tokens", "tokens is required");
  std::vector<int32_t> ids;
  ids.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json& id = (*tokens)[i];
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= model.tokenizer->size()) {
      return make_error(ErrorCode::invalid_request, fmt::format("tokens[{}]", i),
                        "tokens[{}] must be a token id below {}, got {}", i, model.tokenizer->size(),
                        describe(id));
    }
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  }
  const std::string text = model.tokenizer->decode(ids);
  return Json::object({{"prompt", text}, {"content", text}});
}

}  // namespace godwit::server
