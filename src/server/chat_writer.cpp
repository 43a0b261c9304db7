#include "server/chat_writer.h"

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

}  // namespace

void ChatWriter::begin(std::string* out) {
  if (!out) return;
  frame_.open(*out, options_.index);
  *out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
  frame_.close(*out, 0, 0);
}

// OpenAI defines logprobs for content; thinking has its own list (api spec §3.10).
void ChatWriter::logprob(bool reasoning, const engine::Token& token, const engine::TopLogprobs* top) {
  std::string& list = reasoning ? reasoning_logprobs_ : content_logprobs_;
  if (!list.empty()) list.push_back(',');
  append_chat_logprob(list, *options_.tokenizer, token, top);
}

void ChatWriter::delta(const chat::Delta& delta, const Progress& progress, std::string* out) {
  if (out) {
    append_delta(*out, delta, progress);
  } else {
    chat::apply(message_, delta);
  }
}

void ChatWriter::append_delta(std::string& out, const chat::Delta& delta, const Progress& progress) {
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
  frame_.close(out, progress.completion_tokens, progress.reasoning_tokens);
}

// ,"logprobs":… with the entries since the last call.
void ChatWriter::append_logprobs(std::string& out) {
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

void ChatWriter::end(const chat::Finish& finish, int32_t stop_id, const Progress& progress,
                     std::string* out) {
  finish_ = finish;
  stop_id_ = stop_id;
  if (!out) return;
  frame_.open(*out, options_.index);
  *out += ",\"delta\":{}";
  append_logprobs(*out);
  append_finish(*out);
  frame_.close(*out, progress.completion_tokens, progress.reasoning_tokens);
}

void ChatWriter::append_finish(std::string& out) const {
  out += ",";
  append_member(out, "finish_reason", chat::name_of(finish_.reason));
  out += R"(,"stop_reason":)";
  const auto& matched = finish_.stop_string;
  if (matched) {
    append_json_string(out, *matched);
  } else {
    out += stop_id_ >= 0 ? std::to_string(stop_id_) : "null";
  }
}

void ChatWriter::append_choice(std::string& out) {
  out += R"({"index":)" + std::to_string(options_.index) + R"(,"message":{"role":"assistant","content":)";
  append_message(out);
  append_logprobs(out);
  append_finish(out);
  out += "}";
}

void ChatWriter::append_message(std::string& out) const {
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
