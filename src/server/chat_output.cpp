#include "server/chat_output.h"

#include <algorithm>

#include "base/json.h"
#include "server/token_logprobs.h"

namespace godwit::server {
namespace {

void append_member(std::string& out, std::string_view name, std::string_view text) {
  out.push_back('"');
  out += name;
  out += "\":";
  append_json_string(out, text);
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

ChatOutput::ChatOutput(ChatOutputOptions options, const ChunkFrame& frame)
    : options_(std::move(options)),
      frame_(frame),
      front_(options_.tokenizer, options_.control_ids, options_.ids, options_.parser) {}

void ChatOutput::begin(std::string* out) {
  if (!out) return;
  frame_.open(*out, options_.index);
  *out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
  frame_.close(*out, 0, 0);
}

size_t ChatOutput::push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
                        std::string* out) {
  size_t used = 0;
  while (used < tokens.size() && !front_.parser().stopped()) {
    if (options_.logprobs) note_logprob(tokens[used], top.empty() ? nullptr : &top[used]);
    front_.push(tokens[used].id);
    ++used;
    used_ = front_.completion_tokens();
    settle(out);
  }
  return used;
}

// OpenAI defines logprobs for content; thinking has its own list (api spec §3.10).
void ChatOutput::note_logprob(const engine::Token& token, const engine::TopLogprobs* top) {
  if (contains(options_.ids.stop_ids, token.id)) return;
  std::string& list = front_.parser().in_reasoning() ? reasoning_logprobs_ : content_logprobs_;
  if (!list.empty()) list.push_back(',');
  append_chat_logprob(list, *options_.tokenizer, token, top);
}

void ChatOutput::settle(std::string* out) {
  for (const chat::Delta& delta : front_.parser().take()) {
    if (delta.kind == chat::Delta::Kind::reasoning && !options_.include_reasoning) continue;
    if (out) {
      append_delta(*out, delta);
    } else {
      chat::apply(message_, delta);
    }
  }
}

void ChatOutput::append_delta(std::string& out, const chat::Delta& delta) {
  using Kind = chat::Delta::Kind;
  if (delta.kind == Kind::call_end && !delta.truncated) return;
  frame_.open(out, options_.index);
  out += ",\"delta\":{";
  switch (delta.kind) {
    case Kind::reasoning:
      append_member(out, "reasoning_content", delta.text);
      out.push_back(',');
      append_member(out, "reasoning", delta.text);
      break;
    case Kind::content:
    case Kind::promote:
      append_member(out, "content", delta.text);
      break;
    case Kind::call_begin:
      out += R"("tool_calls":[{"index":)" + std::to_string(delta.call) + ',';
      append_member(out, "id", delta.id);
      out += R"(,"type":"function","function":{)";
      append_member(out, "name", delta.name);
      out += R"(,"arguments":""}}])";
      break;
    case Kind::call_arguments:
      out += R"("tool_calls":[{"index":)" + std::to_string(delta.call) + R"(,"function":{)";
      append_member(out, "arguments", delta.text);
      out += "}}]";
      break;
    case Kind::call_end:
      out += R"("tool_calls":[{"index":)" + std::to_string(delta.call) +
             R"(,"function":{"arguments":""},"truncated":true}])";
      break;
  }
  out += "}";
  append_logprobs(out);
  out += R"(,"finish_reason":null)";
  close_chunk(out);
}

void ChatOutput::close_chunk(std::string& out) {
  frame_.close(out, used_, reasoning_tokens());
}

// ,"logprobs":… with the entries since the last call.
void ChatOutput::append_logprobs(std::string& out) {
  if (!options_.logprobs || (content_logprobs_.empty() && reasoning_logprobs_.empty())) {
    out += R"(,"logprobs":null)";
    return;
  }
  out += R"(,"logprobs":{"content":[)" + content_logprobs_ + "]";
  if (!reasoning_logprobs_.empty() && options_.include_reasoning) {
    out += R"(,"reasoning_logprobs":[)" + reasoning_logprobs_ + "]";
  }
  out += "}";
  content_logprobs_.clear();
  reasoning_logprobs_.clear();
}

void ChatOutput::end(engine::FinishReason reason, int32_t stop_id, std::string* out) {
  if (reason == engine::FinishReason::stop && contains(options_.request_stop_ids, stop_id))
    stop_id_ = stop_id;
  front_.end(reason == engine::FinishReason::length ? chat::EndReason::length : chat::EndReason::stop);
  used_ = front_.completion_tokens();
  settle(out);
  if (!out) return;
  frame_.open(*out, options_.index);
  *out += ",\"delta\":{}";
  append_logprobs(*out);
  append_finish(*out);
  close_chunk(*out);
}

std::string_view ChatOutput::finish() const {
  return chat::name_of(front_.parser().finish().reason);
}

void ChatOutput::append_finish(std::string& out) const {
  out += ",";
  append_member(out, "finish_reason", finish());
  out += R"(,"stop_reason":)";
  const auto& matched = front_.parser().finish().stop_string;
  if (matched) {
    append_json_string(out, *matched);
  } else {
    out += stop_id_ >= 0 ? std::to_string(stop_id_) : "null";
  }
}

void ChatOutput::append_choice(std::string& out) {
  out += R"({"index":)" + std::to_string(options_.index) + R"(,"message":{"role":"assistant","content":)";
  append_message(out);
  append_logprobs(out);
  append_finish(out);
  out += "}";
}

void ChatOutput::append_message(std::string& out) const {
  if (message_.content.empty() && !message_.tool_calls.empty()) {
    out += "null";
  } else {
    append_json_string(out, message_.content);
  }
  // Always there: the openai package gives an attribute only to fields that were sent.
  if (message_.reasoning.empty()) {
    out += R"(,"reasoning_content":null,"reasoning":null)";
  } else {
    out += ",";
    append_member(out, "reasoning_content", message_.reasoning);
    out += ",";
    append_member(out, "reasoning", message_.reasoning);
  }
  if (!message_.tool_calls.empty()) {
    out += R"(,"tool_calls":[)";
    for (size_t i = 0; i < message_.tool_calls.size(); ++i) {
      const chat::ToolCall& call = message_.tool_calls[i];
      out += i == 0 ? "{" : ",{";
      append_member(out, "id", call.id);
      out += R"(,"type":"function","function":{)";
      append_member(out, "name", call.name);
      out += ",";
      append_member(out, "arguments", call.arguments);
      out += call.truncated ? R"(},"truncated":true})" : "}}";
    }
    out += "]";
  }
  out += R"(,"refusal":null})";
}

}  // namespace godwit::server
