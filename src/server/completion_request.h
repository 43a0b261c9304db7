// POST /v1/completions: body ▶ plan (api spec §4.6). Runs on a text worker.
#pragma once

#include <memory>

#include "server/generation.h"
#include "server/serving_model.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> prepare_completion(const ServingModel& model,
                                                           const HttpRequest& request,
                                                           std::string_view build);

}  // namespace godwit::server
