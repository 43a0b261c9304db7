// POST /v1/messages and /v1/messages/count_tokens (api spec §4.11). Run on a text worker.
#pragma once

#include <memory>

#include "server/generation.h"
#include "server/serving_model.h"

namespace godwit::server {

Result<std::unique_ptr<GenerationPlan>> prepare_messages(const ServingModel& model,
                                                         const HttpRequest& request);

// {"input_tokens": n}: exactly what the same request to /v1/messages would have.
Result<Json> count_message_tokens(const ServingModel& model, const HttpRequest& request);

}  // namespace godwit::server
