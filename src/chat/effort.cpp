#include "chat/effort.h"

namespace godwit::chat {
namespace {

// Looks members up in the body, then in a literal "extra_body": people send the SDK's argument raw.
class Body {
 public:
  explicit Body(const Json& body) : body_(body), extra_(body.find("extra_body")) {}

  const Json* find(std::string_view key) const {
    const Json* found = body_.find(key);
    if ((found == nullptr || found->is_null()) && extra_ != nullptr) found = extra_->find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

 private:
  const Json& body_;
  const Json* extra_;
};

const Json* member(const Json* object, std::string_view key) {
  const Json* found = object == nullptr ? nullptr : object->find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

Result<std::optional<bool>> flag(const Json* value, std::string_view field) {
  if (value == nullptr) return std::optional<bool>();
  if (value->is_bool()) return std::optional<bool>(value->as_bool());
  return make_error(ErrorCode::invalid_request, std::string(field), "{} must be true or false, not {}", field,
                    dump_json(*value).substr(0, 100));
}

Result<void> need_object(const Json* value, std::string_view field) {
  if (value == nullptr || value->is_object()) return {};
  return make_error(ErrorCode::invalid_request, std::string(field), "{} must be an object", field);
}

// The first effort given, in order of precedence.
Result<std::optional<Effort>> requested_effort(const Body& body) {
  const std::pair<const Json*, std::string_view> places[] = {
      {member(body.find("chat_template_kwargs"), "reasoning_effort"),
       "chat_template_kwargs.reasoning_effort"},
      {body.find("reasoning_effort"), "reasoning_effort"},
      {member(body.find("reasoning"), "effort"), "reasoning.effort"},
      {member(body.find("output_config"), "effort"), "output_config.effort"}};
  for (const auto& [value, field] : places) {
    if (value == nullptr) continue;
    if (!value->is_string()) {
      return make_error(ErrorCode::invalid_request, std::string(field), "{} must be a string", field);
    }
    GODWIT_ASSIGN(Effort effort, parse_effort(value->as_string(), field));
    return std::optional<Effort>(effort);
  }
  return std::optional<Effort>();
}

// What the on/off switches say: any "off" wins.
Result<std::optional<bool>> requested_switch(const Body& body) {
  const Json* kwargs = body.find("chat_template_kwargs");
  const Json* thinking = body.find("thinking");
  const std::pair<const Json*, std::string_view> places[] = {
      {member(kwargs, "enable_thinking"), "chat_template_kwargs.enable_thinking"},
      {member(kwargs, "thinking"), "chat_template_kwargs.thinking"},
      {body.find("enable_thinking"), "enable_thinking"},
      {member(body.find("reasoning"), "enabled"), "reasoning.enabled"},
      {thinking != nullptr && thinking->is_bool() ? thinking : nullptr, "thinking"}};
  std::optional<bool> out;
  for (const auto& [value, field] : places) {
    GODWIT_ASSIGN(std::optional<bool> on, flag(value, field));
    if (on) out = out.value_or(true) && *on;
  }
  // {type: enabled | adaptive | disabled}; types of tomorrow must not fail a request.
  if (const Json* type = member(thinking, "type"); type != nullptr && type->is_string()) {
    out = out.value_or(true) && type->as_string() != "disabled";
  }
  return out;
}

// The budget by whichever of its names was sent; two that differ contradict each other. -1 says "any number"
// in those dialects that know it, as 0 does in Anthropic's; elsewhere 0 is "do not think".
Result<int64_t> requested_budget(const Body& body) {
  constexpr int64_t kMost = 1 << 30;
  const std::pair<const Json*, std::string_view> places[] = {
      {body.find("thinking_token_budget"), "thinking_token_budget"},
      {member(body.find("thinking"), "budget_tokens"), "thinking.budget_tokens"},
      {member(body.find("reasoning"), "max_tokens"), "reasoning.max_tokens"},
      {body.find("max_reasoning_tokens"), "max_reasoning_tokens"},
      {body.find("reasoning_budget"), "reasoning_budget"}};
  int64_t budget = -1;
  std::string_view first;
  for (const auto& [value, field] : places) {
    if (value == nullptr) continue;
    if (!value->is_integer() || value->as_integer() < -1 || value->as_integer() > kMost) {
      return make_error(ErrorCode::invalid_request, std::string(field),
                        "{} must be an integer from -1 (no limit) to {}, not {}", field, kMost,
                        dump_json(*value).substr(0, 100));
    }
    int64_t asked = value->as_integer();
    if (asked == 0 && field == "thinking.budget_tokens") asked = -1;
    if (!first.empty() && asked != budget) {
      return make_error(ErrorCode::invalid_request, std::string(field),
                        "{} says {} and {} says {}; send one of them", first, budget, field, asked);
    }
    budget = asked;
    first = field;
  }
  return budget;
}

}  // namespace

Result<Effort> parse_effort(std::string_view value, std::string_view field) {
  if (value == "minimal" || value == "low") return Effort{false, "low"};
  if (value == "medium" || value == "high") return Effort{false, "high"};
  if (value == "xhigh" || value == "max") return Effort{};
  if (value == "none") return Effort{true, ""};
  return make_error(ErrorCode::invalid_request, std::string(field),
                    "{} is \"{}\"; it must be one of none, minimal, low, medium, high, xhigh, max", field,
                    value.substr(0, 100));
}

Result<Thinking> resolve_thinking(const Json& json, std::string_view default_effort) {
  Body body(json);
  const Json* kwargs = body.find("chat_template_kwargs");
  const Json* thinking = body.find("thinking");
  GODWIT_TRY(need_object(kwargs, "chat_template_kwargs"));
  GODWIT_TRY(need_object(body.find("reasoning"), "reasoning"));
  GODWIT_TRY(need_object(body.find("output_config"), "output_config"));
  if (thinking != nullptr && !thinking->is_bool()) GODWIT_TRY(need_object(thinking, "thinking"));

  GODWIT_ASSIGN(std::optional<Effort> effort, requested_effort(body));
  GODWIT_ASSIGN(std::optional<bool> on, requested_switch(body));
  if (!effort && !default_effort.empty()) {
    GODWIT_ASSIGN(effort, parse_effort(default_effort, "default-reasoning-effort"));
    if (effort->off && on == true) effort.reset();  // a client that asks for thinking gets it
  }
  Thinking out;
  GODWIT_ASSIGN(out.budget, requested_budget(body));
  out.off = on == false || (effort && effort->off) || out.budget == 0;
  if (kwargs != nullptr) out.template_kwargs = kwargs->as_object();
  out.template_kwargs.erase("reasoning_effort");
  const std::string variable = effort ? effort->variable : "";
  if (!variable.empty()) out.template_kwargs.set("reasoning_effort", variable);
  if (out.off) out.template_kwargs.set("enable_thinking", false);  // for the templates that can

  GODWIT_ASSIGN(std::optional<bool> clear,
                flag(member(thinking, "clear_thinking"), "thinking.clear_thinking"));
  if (clear && out.template_kwargs.find("clear_thinking") == nullptr)
    out.template_kwargs.set("clear_thinking", *clear);
  GODWIT_ASSIGN(std::optional<bool> include, flag(body.find("include_reasoning"), "include_reasoning"));
  GODWIT_ASSIGN(std::optional<bool> exclude,
                flag(member(body.find("reasoning"), "exclude"), "reasoning.exclude"));
  out.include_reasoning = include.value_or(true) && !exclude.value_or(false);
  return out;
}

}  // namespace godwit::chat
