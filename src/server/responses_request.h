// POST /v1/responses (api spec §4.10). Runs on a text worker.
#pragma once

#include <memory>

#include "server/generation.h"
#include "server/response_store.h"
#include "server/serving_model.h"

namespace godwit::server {

// `store` outlives the plan. Errors: not_found for a previous_response_id that is not in it.
Result<std::unique_ptr<GenerationPlan>> prepare_responses(const ServingModel& model,
                                                          const HttpRequest& request, ResponseStore& store);

}  // namespace godwit::server
