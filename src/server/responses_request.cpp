#include "server/responses_request.h"

#include <cmath>

#include "base/hash.h"
#include "server/chat_plan.h"
#include "server/fields.h"
#include "server/responses_chat.h"
#include "server/responses_writer.h"
#include "server/translate.h"

namespace godwit::server {
namespace {

constexpr RouteWords kWords{.route = "responses", .id_prefix = "resp_", .object = {}, .chunk = {}};

// The conversation that `previous_response_id` names; empty without one.
Result<JsonArray> read_history(const Json& body, const HttpRequest& request, ResponseStore& store) {
  Fields fields(body, "");
  const std::string* previous = fields.string("previous_response_id");
  const std::string* salt = fields.string("cache_salt");
  if (fields.error()) return *fields.error();
  if (!previous) return JsonArray();
  const auto found = store.find(*previous, request.key);
  if (!found || found->cache_salt != (salt ? hash_bytes(*salt) : 0)) {
    return make_error(ErrorCode::not_found, "previous_response_id",
                      "previous_response_id {} is not stored here: it was never stored, has been deleted, or "
                      "had to make room; send the conversation as input",
                      describe(Json(*previous)));
  }
  GODWIT_ASSIGN(Json conversation, parse_json(found->conversation));
  return std::move(conversation.as_array());
}

// 0.95 and not 0.949999988: a float has seven digits.
double as_written(float value) {
  return std::round(static_cast<double>(value) * 1e6) / 1e6;
}

// The members of the response object that do not change: what was asked for, and what is in force.
std::string response_head(const GenerationPlan& plan, const ChatFacts& facts, const Json& body) {
  JsonObject head;
  head.set("id", plan.response_id);
  head.set("object", "response");
  head.set("created_at", plan.created);
  head.set("model", facts.model_name);
  head.set("background", false);
  for (const std::string_view key : {"instructions", "previous_response_id", "user", "reasoning"}) {
    const Json* value = body.find(key);
    head.set(key, value ? *value : Json());
  }
  const auto echo = [&](std::string_view key, Json fallback) {
    const Json* value = member_of(body, key);
    head.set(key, value ? *value : std::move(fallback));
  };
  echo("metadata", JsonObject());
  echo("parallel_tool_calls", true);
  echo("tool_choice", "auto");
  echo("tools", JsonArray());
  echo("text", Json::object({{"format", Json::object({{"type", "text"}})}}));
  echo("store", true);
  echo("truncation", "disabled");
  head.set("max_output_tokens", facts.max_tokens);
  head.set("temperature", as_written(facts.task.common.sampling.temperature));
  head.set("top_p", as_written(facts.task.common.sampling.top_p));
  head.set("seed", static_cast<int64_t>(facts.task.common.sampling.seed));
  std::string out = dump_json(Json(std::move(head)), JsonStyle::compact());
  out.pop_back();
  return out;
}

}  // namespace

Result<std::unique_ptr<GenerationPlan>> prepare_responses(const ServingModel& model,
                                                          const HttpRequest& request, ResponseStore& store) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  GODWIT_ASSIGN(JsonArray history, read_history(body, request, store));
  JsonArray conversation = history;
  GODWIT_ASSIGN(ResponsesChat translated, chat_of_responses(body, std::move(history)));
  const Json* wanted = member_of(body, "store");
  const bool keep = !wanted || wanted->as_bool();

  auto set_wire = [&](GenerationPlan& plan, const ChatFacts& facts) -> MakeWriter {
    ResponsesWriter::Keep keeper;
    if (keep) {
      for (Json& turn : translated.turns) conversation.push_back(std::move(turn));
      std::string messages = dump_json(Json(std::move(conversation)), JsonStyle::compact());
      messages.back() = ',';  // there is at least one message: an answer follows
      keeper = [&store, messages = std::move(messages), id = plan.response_id, owner = request.key,
                salt = facts.task.common.cache_salt](std::string answer, std::string message) mutable {
        messages += message;
        messages += ']';
        store.put(id, {owner, salt, std::move(answer), std::move(messages)});
      };
    }
    auto writer = std::make_shared<ResponsesWriter>(response_head(plan, facts, body),
                                                    plan.response_id.substr(kWords.id_prefix.size()),
                                                    std::move(keeper));
    plan.wire = writer;
    return [writer](int) { return writer; };
  };
  auto plan = plan_chat(model, request, translated.chat, kWords, set_wire);
  if (!plan) return responses_error(std::move(plan.error()));
  return plan;
}

}  // namespace godwit::server
