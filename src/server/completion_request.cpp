#include "server/completion_request.h"

#include "chat/prompt.h"
#include "server/completion_output.h"
#include "server/fields.h"
#include "server/known_fields.h"
#include "server/output_rules.h"
#include "server/plan.h"
#include "server/unsupported.h"

namespace godwit::server {
namespace {

constexpr size_t kMaxPrompts = 128;
constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's for this route

struct Prompt {
  std::vector<int32_t> ids;
  std::string echo;
};

Result<Prompt> prompt_of_text(const ServingModel& model, const std::string& text, const std::string& path) {
  auto ids = model.tokenizer->encode(text);
  if (!ids) {
    ids.error().field = path;
    return std::move(ids.error());
  }
  if (ids->empty()) return make_error(ErrorCode::invalid_request, path, "{} must not be empty", path);
  return Prompt{std::move(*ids), text};
}

Result<Prompt> prompt_of_ids(const ServingModel& model, const JsonArray& items, const std::string& path) {
  if (items.empty()) return make_error(ErrorCode::invalid_request, path, "{} must not be empty", path);
  Prompt prompt;
  prompt.ids.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const bool valid = items[i].is_integer() && items[i].as_integer() >= 0 &&
                       items[i].as_integer() < model.tokenizer->size() &&
                       model.tokenizer->has(static_cast<int32_t>(items[i].as_integer()));
    if (!valid) {
      return make_error(ErrorCode::invalid_request, fmt::format("{}[{}]", path, i),
                        "{}[{}] must be a token id below {}, got {}", path, i, model.tokenizer->size(),
                        describe(items[i]));
    }
    prompt.ids.push_back(static_cast<int32_t>(items[i].as_integer()));
  }
  prompt.echo = model.tokenizer->decode(prompt.ids);
  return prompt;
}

// A string, a list of strings, a list of ids, a list of lists of ids.
Result<std::vector<Prompt>> read_prompts(const ServingModel& model, const Fields& fields) {
  std::vector<Prompt> prompts;
  const Json* prompt = fields.any("prompt");
  if (!prompt) return make_error(ErrorCode::invalid_request, "prompt", "prompt is required");
  if (prompt->is_string()) {
    GODWIT_ASSIGN(auto one, prompt_of_text(model, prompt->as_string(), "prompt"));
    prompts.push_back(std::move(one));
    return prompts;
  }
  if (!prompt->is_array() || prompt->as_array().empty()) {
    return make_error(ErrorCode::invalid_request, "prompt",
                      "prompt must be a string, or a list of strings, token ids or lists of token ids, and "
                      "not empty; got {}",
                      describe(*prompt));
  }
  const JsonArray& items = prompt->as_array();
  if (items[0].is_number()) {
    GODWIT_ASSIGN(auto one, prompt_of_ids(model, items, "prompt"));
    prompts.push_back(std::move(one));
    return prompts;
  }
  if (items.size() > kMaxPrompts) {
    return make_error(ErrorCode::invalid_request, "prompt", "prompt has {} items, at most {} are allowed",
                      items.size(), kMaxPrompts);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string path = fmt::format("prompt[{}]", i);
    if (items[i].is_string()) {
      GODWIT_ASSIGN(auto one, prompt_of_text(model, items[i].as_string(), path));
      prompts.push_back(std::move(one));
    } else if (items[i].is_array()) {
      GODWIT_ASSIGN(auto one, prompt_of_ids(model, items[i].as_array(), path));
      prompts.push_back(std::move(one));
    } else {
      return make_error(ErrorCode::invalid_request, path,
                        "{} must be a string or a list of token ids, got {}", path, describe(items[i]));
    }
  }
  return prompts;
}

// More answers could never all be admitted, and "try again" would be a lie.
Result<void> check_answers(const ServingModel& model, size_t prompts, int32_t each, std::string_view field) {
  const engine::Info& info = model.service->info();
  const int64_t limit = info.max_sequences + info.max_waiting;
  const int64_t answers = static_cast<int64_t>(prompts) * each;
  if (answers <= limit) return {};
  return make_error(ErrorCode::invalid_request, std::string(field),
                    "{} is {} for each of {} prompts: {} answers, at most {} can run and wait here", field,
                    each, prompts, answers, limit);
}

}  // namespace

Result<std::unique_ptr<GenerationPlan>> prepare_completion(const ServingModel& model,
                                                           const HttpRequest& request,
                                                           std::string_view build) {
  GODWIT_ASSIGN(const Json body, parse_body(request.body));
  report_unknown_fields(body, "completions");
  Fields fields(body, "");
  const bool echo = fields.boolean("echo").value_or(false);
  CommonLimits limits = common_limits(model);
  limits.fewest_tokens = echo ? 0 : 1;
  CommonFields common = read_common_fields(fields, limits);
  const Json* most = fields.any("max_tokens");
  const bool discard = echo && most && *most == Json(0);
  const auto logprobs = fields.integer("logprobs", 0, sample::kMaxTopLogprobs);
  const auto best_of = fields.integer("best_of", 1, kMaxChoices);
  const int kept = common.n;
  if (best_of && *best_of < common.n)
    fields.refuse("best_of", fmt::format("is {}, but n asks for {} choices", *best_of, common.n));
  if (best_of && *best_of > common.n && common.stream)
    fields.refuse("best_of", "must equal n when stream is true: the best is known at the end only");
  common.n = static_cast<int32_t>(best_of.value_or(common.n));
  const bool choose = common.n > kept;
  if (fields.has("suffix"))
    fields.refuse("suffix", "is not supported: this model is not trained to fill in between two texts");
  const AnswerFormat format = read_answer_format(fields);
  refuse_unsupported(fields);
  if (fields.error()) return *fields.error();
  const bool scored = echo && logprobs;
  if (logprobs || choose) common.sampling.top_logprobs = static_cast<int32_t>(logprobs.value_or(0));

  GODWIT_ASSIGN(const std::string name, resolve_model(model, common.model));
  GODWIT_ASSIGN(std::vector<Prompt> prompts, read_prompts(model, fields));
  GODWIT_TRY(check_answers(model, prompts.size(), common.n, choose ? "best_of" : "n"));
  const ToolRules no_tools;
  auto plan = make_plan(kCompletionWords, request, common);
  const auto wire = set_openai_wire(*plan, kCompletionWords, common, name, build);
  if (choose) plan->kept_per_prompt = kept;
  const int64_t wanted = discard                      ? 1
                         : common.stop.max_tokens > 0 ? common.stop.max_tokens
                                                      : kDefaultMaxTokens;
  for (size_t p = 0; p < prompts.size(); ++p) {
    GODWIT_ASSIGN(const int64_t max_tokens,
                  fit_max_tokens(model, static_cast<int64_t>(prompts[p].ids.size()), wanted));
    const bool thinking = chat::starts_thinking(prompts[p].ids, model.control_ids);
    GODWIT_ASSIGN(const engine::OutputRules rules,
                  make_output_rules(model, {format, no_tools, nullptr, thinking}));
    adapt_to_rules(rules, common.stop);
    for (int k = 0; k < common.n; ++k) {
      CompletionOutputOptions options;
      options.index = static_cast<int>(p) * common.n + k;
      options.tokenizer = model.tokenizer;
      options.stop_ids = effective_stop_ids(model, common.stop);
      options.request_stop_ids = common.stop.stop_ids;
      options.stop_strings = common.stop_strings;
      options.include_stop = common.include_stop;
      options.skip_special_tokens = common.skip_special_tokens;
      options.logprobs = logprobs.has_value();
      options.discard = discard;
      if (scored) options.scored_prompt = prompts[p].ids;
      if (echo && !scored) options.echo = prompts[p].echo;
      add_choice(*plan, common, {prompts[p].ids, max_tokens, static_cast<int>(p), k, rules, scored},
                 std::make_unique<CompletionOutput>(std::move(options), wire->frame()));
    }
  }
  return plan;
}

}  // namespace godwit::server
