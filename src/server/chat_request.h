// POST /v1/chat/completions: body ▶ plan (api spec §4.5): normalise, settle thinking, render, tokenise, fit.
// Runs on a text worker.
#pragma once

#include <memory>
#include <vector>

#include "server/generation.h"
#include "server/serving_model.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> prepare_chat(const ServingModel& model, const HttpRequest& request,
                                                     std::string_view build);

// The ids that a chat request's prompt has, for /tokenize.
Result<std::vector<int32_t>> chat_prompt_ids(const ServingModel& model, const Json& body);

}  // namespace godwit::server
