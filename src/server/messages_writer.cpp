#include "server/messages_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/sse.h"

namespace godwit::server {
namespace {

void append_messages_usage(std::string& out, const Usage& u) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":{},)"
                 R"("output_tokens":{}}})",
                 u.prompt_tokens - u.cached_tokens, u.cached_tokens, u.completion_tokens);
}

}  // namespace

void MessagesWriter::delta(const chat::Delta& delta, const Progress&, std::string* out) {
  using Is = chat::Delta::Kind;
  switch (delta.kind) {
    case Is::reasoning:
      open(Kind::thinking, delta, out);
      return piece(delta.text, out);
    case Is::promote:
      // In a stream the thinking has been sent and stays; a body has the text once.
      if (!out) std::erase_if(blocks_, [](const Block& b) { return b.kind == Kind::thinking; });
      if (!out) open_ = false;
      [[fallthrough]];
    case Is::content:
      open(Kind::text, delta, out);
      return piece(delta.text, out);
    case Is::call_begin:
      calls_ = true;
      return open(Kind::tool_use, delta, out);
    case Is::call_arguments:
      return piece(delta.text, out);
    case Is::call_end:
      return close(out);
  }
}

// Blocks never interleave: another kind closes the one before. Each call is a block of its own.
void MessagesWriter::open(Kind kind, const chat::Delta& delta, std::string* out) {
  if (open_ && blocks_.back().kind == kind && kind != Kind::tool_use) return;
  close(out);
  blocks_.push_back({kind, "", delta.id, delta.name});
  open_ = true;
  if (!out) return;
  begin_block_event(*out, "content_block_start");
  *out += ",\"content_block\":";
  append_block(*out, blocks_.back(), blocks_.size() - 1);
  end_event(*out);
}

void MessagesWriter::piece(const std::string& text, std::string* out) {
  Block& block = blocks_.back();
  if (!out) {
    block.text += text;
    return;
  }
  static constexpr std::string_view kTypes[] = {"thinking_delta", "text_delta", "input_json_delta"};
  static constexpr std::string_view kMembers[] = {"thinking", "text", "partial_json"};
  begin_block_event(*out, "content_block_delta");
  *out += R"(,"delta":{"type":")";
  *out += kTypes[static_cast<size_t>(block.kind)];
  *out += '"';
  append_text_member(*out, kMembers[static_cast<size_t>(block.kind)], text);
  *out += "}";
  end_event(*out);
}

void MessagesWriter::close(std::string* out) {
  if (!open_) return;
  open_ = false;
  if (!out) return;
  if (blocks_.back().kind == Kind::thinking) {
    begin_block_event(*out, "content_block_delta");
    *out += R"(,"delta":{"type":"signature_delta")";
    append_text_member(*out, "signature", signature(blocks_.size() - 1));
    *out += "}";
    end_event(*out);
  }
  begin_block_event(*out, "content_block_stop");
  end_event(*out);
}

void MessagesWriter::end(const chat::Finish& finish, int32_t, const Progress&, std::string* out) {
  finish_ = finish;
  if (blocks_.empty()) open(Kind::text, {}, out);  // clients look at content[0]
  close(out);
  ended_ = true;
}

void MessagesWriter::begin_block_event(std::string& out, std::string_view type) const {
  begin_event(out, type);
  out += R"(,"index":)" + std::to_string(blocks_.size() - 1);
}

// Clients send it back with the block; it says where the thinking came from and carries nothing else.
std::string MessagesWriter::signature(size_t index) const {
  return fmt::format("godwit:{}:{}", id_, index);
}

// As it is now: empty at the start of a stream's block.
void MessagesWriter::append_block(std::string& out, const Block& block, size_t index) const {
  switch (block.kind) {
    case Kind::thinking:
      out += R"({"type":"thinking")";
      append_text_member(out, "thinking", block.text);
      append_text_member(out, "signature", open_ ? "" : signature(index));
      break;
    case Kind::text:
      out += R"({"type":"text")";
      append_text_member(out, "text", block.text);
      break;
    case Kind::tool_use:
      out += R"({"type":"tool_use")";
      append_text_member(out, "id", block.id);
      append_text_member(out, "name", block.name);
      out += ",\"input\":";
      out += block.text.empty() ? "{}" : block.text;
      break;
  }
  out += "}";
}

// ,"stop_reason":…,"stop_sequence":…
void MessagesWriter::append_stop(std::string& out) const {
  if (!ended_) {
    out += R"("stop_reason":null,"stop_sequence":null)";
    return;
  }
  const bool cut = finish_.reason == chat::FinishReason::length;
  const std::string_view reason = cut                   ? "max_tokens"
                                  : finish_.stop_string ? "stop_sequence"
                                  : calls_              ? "tool_use"
                                                        : "end_turn";
  out += R"("stop_reason":")";
  out += reason;
  out += R"(","stop_sequence":)";
  if (!cut && finish_.stop_string) {
    append_json_string(out, *finish_.stop_string);
  } else {
    out += "null";
  }
}

void MessagesWriter::append_message(std::string& out, const Usage& usage) const {
  out += R"({"id":)";
  append_json_string(out, id_);
  out += R"(,"type":"message","role":"assistant")";
  append_text_member(out, "model", model_);
  out += ",\"content\":[";
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0) out += ",";
    append_block(out, blocks_[i], i);
  }
  out += "],";
  append_stop(out);
  out += ",\"usage\":";
  append_messages_usage(out, usage);
  out += "}";
}

void MessagesWriter::begin(std::string& out, const Usage& counted) {
  begun_ = true;
  begin_event(out, "message_start");
  out += ",\"message\":";
  append_message(out, counted);
  end_event(out);
  silence(out);
}

void MessagesWriter::end(std::string& out, const Outcome& outcome) {
  begin_event(out, "message_delta");
  out += ",\"delta\":{";
  append_stop(out);
  out += "},\"usage\":";
  append_messages_usage(out, outcome.usage);
  end_event(out);
  begin_event(out, "message_stop");
  end_event(out);
}

void MessagesWriter::fail(std::string& out, const Error& error) {
  out += "event: error\ndata: ";
  append_error_json(out, error, errors_);
  out += "\n\n";
}

// Clients expect message_start to be the first event.
void MessagesWriter::silence(std::string& out) {
  if (!begun_) return Wire::silence(out);
  begin_event(out, "ping");
  end_event(out);
}

std::string MessagesWriter::body(Outputs, const Outcome& outcome) {
  std::string out;
  append_message(out, outcome.usage);
  return out;
}

}  // namespace godwit::server
