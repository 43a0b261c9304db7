// POST /v1/chat/completions: body ▶ plan (api spec §4.5). Runs on a text worker.
#pragma once

#include <memory>
#include <string_view>

#include "server/generation.h"
#include "server/serving_model.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> prepare_chat(const ServingModel& model, const HttpRequest& request,
                                                     std::string_view build);

}  // namespace godwit::server
