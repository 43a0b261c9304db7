// The parts of a GenerationPlan that all routes build the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/generation.h"
#include "server/openai_wire.h"
#include "server/sampling_fields.h"
#include "server/serving_model.h"

namespace godwit::server {

// What a route is called on the wire.
struct RouteWords {
  std::string_view route;      // "chat"
  std::string_view id_prefix;  // "chatcmpl-"
  std::string_view object;     // "chat.completion"
  std::string_view chunk;      // "chat.completion.chunk"; object and chunk only on OpenAI routes
};
extern const RouteWords kChatWords;
extern const RouteWords kCompletionWords;

CommonLimits common_limits(const ServingModel& model);

// The served model that `name` asks for; the default one for "". Errors: model_not_found.
Result<std::string> resolve_model(const ServingModel& model, const std::string& name);

// How many tokens may be generated: the client's wish, else the default, cut to what the context leaves
// (design §12). Errors: context_length, in the words that the style's clients match (api spec §4.4).
Result<int64_t> fit_max_tokens(const ServingModel& model, int64_t prompt_tokens, int64_t wanted,
                               ErrorStyle style = ErrorStyle::openai);

// Ids that end a choice: the model's own unless ignored, and the request's.
std::vector<int32_t> effective_stop_ids(const ServingModel& model, const engine::StopRules& stop);

// Ids and times; no wire and no requests yet.
std::unique_ptr<GenerationPlan> make_plan(const RouteWords& words, const HttpRequest& request,
                                          const CommonFields& fields);

// Sets the wire of an OpenAI route. `model_name` as the client wrote it.
std::shared_ptr<OpenAiWire> set_openai_wire(GenerationPlan& plan, const RouteWords& words,
                                            const CommonFields& fields, std::string_view model_name,
                                            std::string_view build);

// One choice of one prompt.
struct ChoiceInput {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;  // from fit_max_tokens
  int prompt_index = 0;
  int choice_index = 0;
  engine::OutputRules rules;
  bool prompt_logprobs = false;
};

// One more choice: sequence and output.
void add_choice(GenerationPlan& plan, const CommonFields& fields, ChoiceInput choice,
                std::unique_ptr<ChoiceOutput> output);

}  // namespace godwit::server
