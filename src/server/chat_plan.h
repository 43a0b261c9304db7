// A request in the form of /v1/chat/completions ▶ plan. The other conversation protocols are translated to
// that form first, so that every field is read, checked and rendered in one place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/chat_task.h"
#include "server/generation.h"
#include "server/plan.h"
#include "server/serving_model.h"

namespace godwit::server {

// What the writers of a plan may need to know.
struct ChatFacts {
  const ChatTask& task;
  std::string model_name;  // as the client wrote it, else the default's
  int64_t max_tokens = 0;
};

// Called once: sets plan.wire and returns a function that makes the writer of choice 0, 1, ….
using MakeWriter = std::function<std::shared_ptr<DeltaWriter>(int index)>;
using SetWire = std::function<MakeWriter(GenerationPlan& plan, const ChatFacts& facts)>;

// Normalises, settles thinking, renders, tokenises, fits (api spec §4.5). Errors name fields of `body`.
Result<std::unique_ptr<GenerationPlan>> plan_chat(const ServingModel& model, const HttpRequest& request,
                                                  const Json& body, const RouteWords& words,
                                                  const SetWire& set_wire);

// The ids of the prompt alone.
Result<std::vector<int32_t>> chat_prompt_ids(const ServingModel& model, const Json& body);

}  // namespace godwit::server
