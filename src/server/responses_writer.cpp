#include "server/responses_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/response_items.h"
#include "server/sse.h"

namespace godwit::server {

void ResponsesWriter::begin(std::string* out) {
  if (!out) return;
  response_event(*out, "response.created", nullptr, nullptr);
  response_event(*out, "response.in_progress", nullptr, nullptr);
}

void ResponsesWriter::delta(const chat::Delta& delta, const Progress&, std::string* out) {
  using Is = chat::Delta::Kind;
  switch (delta.kind) {
    case Is::reasoning:
      open(ItemKind::reasoning, delta, out);
      return piece(delta.text, out);
    case Is::promote:
      // In a stream the reasoning has been sent and stays; a body has the text once.
      promoted_ = true;
      if (!out) std::erase_if(items_, [](const OutputItem& i) { return i.kind == ItemKind::reasoning; });
      [[fallthrough]];
    case Is::content:
      open(ItemKind::message, delta, out);
      return piece(delta.text, out);
    case Is::call_begin:
      return open(ItemKind::function_call, delta, out);
    case Is::call_arguments:
      return piece(delta.text, out);
    case Is::call_end:
      return close(delta.truncated ? ItemStatus::incomplete : ItemStatus::completed, out);
  }
}

// Items never interleave: another kind closes the one before. Each call is an item of its own.
void ResponsesWriter::open(ItemKind kind, const chat::Delta& delta, std::string* out) {
  const bool growing = !items_.empty() && items_.back().status == ItemStatus::in_progress;
  if (growing && items_.back().kind == kind && kind != ItemKind::function_call) return;
  close(ItemStatus::completed, out);
  items_.push_back(
      {kind, item_id(kind, seed_, items_.size()), "", delta.id, delta.name, ItemStatus::in_progress});
  if (!out) return;
  item_event(*out, "response.output_item.added");
  part_event(*out, "added");
}

void ResponsesWriter::piece(const std::string& text, std::string* out) {
  OutputItem& item = items_.back();
  item.text += text;
  if (!out) return;
  begin_item_event(*out, fmt::format("response.{}.delta", text_event(item.kind)));
  append_text_member(*out, "delta", text);
  if (item.kind == ItemKind::message) *out += R"(,"logprobs":[])";
  end_event(*out);
}

void ResponsesWriter::close(ItemStatus status, std::string* out) {
  if (items_.empty() || items_.back().status != ItemStatus::in_progress) return;
  OutputItem& item = items_.back();
  item.status = status;
  if (!out) return;
  begin_item_event(*out, fmt::format("response.{}.done", text_event(item.kind)));
  append_text_member(*out, item.kind == ItemKind::function_call ? "arguments" : "text", item.text);
  if (item.kind == ItemKind::function_call) append_text_member(*out, "name", item.name);
  if (item.kind == ItemKind::message) *out += R"(,"logprobs":[])";
  end_event(*out);
  part_event(*out, "done");
  item_event(*out, "response.output_item.done");
}

void ResponsesWriter::end(const chat::Finish& finish, int32_t, const Progress&, std::string* out) {
  status_ = finish.reason == chat::FinishReason::length ? ItemStatus::incomplete : ItemStatus::completed;
  close(status_, out);
}

void ResponsesWriter::begin_numbered(std::string& out, std::string_view type) {
  begin_event(out, type);
  fmt::format_to(std::back_inserter(out), R"(,"sequence_number":{})", sequence_++);
}

// Of the last item; its text is in part 0.
void ResponsesWriter::begin_item_event(std::string& out, std::string_view type) {
  begin_numbered(out, type);
  append_text_member(out, "item_id", items_.back().id);
  fmt::format_to(std::back_inserter(out), R"(,"output_index":{})", items_.size() - 1);
  if (items_.back().kind != ItemKind::function_call) out += R"(,"content_index":0)";
}

void ResponsesWriter::item_event(std::string& out, std::string_view type) {
  begin_numbered(out, type);
  fmt::format_to(std::back_inserter(out), R"(,"output_index":{},"item":)", items_.size() - 1);
  append_item(out, items_.back());
  end_event(out);
}

void ResponsesWriter::part_event(std::string& out, std::string_view suffix) {
  const OutputItem& item = items_.back();
  if (item.kind == ItemKind::function_call) return;
  const std::string_view part = item.kind == ItemKind::reasoning ? "reasoning_part" : "content_part";
  begin_item_event(out, fmt::format("response.{}.{}", part, suffix));
  out += ",\"part\":";
  append_part(out, item);
  end_event(out);
}

void ResponsesWriter::response_event(std::string& out, std::string_view type, const Usage* usage,
                                     const Error* error) {
  begin_numbered(out, type);
  out += ",\"response\":";
  append_response(out, usage, error);
  end_event(out);
}

void ResponsesWriter::append_response(std::string& out, const Usage* usage, const Error* error) const {
  out += head_;
  append_text_member(out, "status", error ? "failed" : name_of(status_));
  out += ",\"error\":";
  if (error) {
    const ErrorInfo& row = info(error->code);
    out += R"({"code":)";
    append_json_string(out, row.code.empty() ? row.type : row.code);
    append_text_member(out, "message", error->message);
    out += "}";
  } else {
    out += "null";
  }
  out += R"(,"incomplete_details":)";
  out += !error && status_ == ItemStatus::incomplete ? R"({"reason":"max_output_tokens"})" : "null";
  out += ",\"output\":[";
  for (size_t i = 0; i < items_.size(); ++i) {
    if (i > 0) out += ",";
    append_item(out, items_[i]);
  }
  out += "],\"usage\":";
  if (usage) {
    append_responses_usage(out, *usage);
  } else {
    out += "null";
  }
  out += "}";
}

std::string ResponsesWriter::finished(const Outcome& outcome) {
  std::string out;
  append_response(out, &outcome.usage, nullptr);
  if (keep_) keep_(out, chat_message_of(items_, promoted_));
  return out;
}

void ResponsesWriter::end(std::string& out, const Outcome& outcome) {
  const bool cut = status_ == ItemStatus::incomplete;
  begin_numbered(out, cut ? "response.incomplete" : "response.completed");
  out += ",\"response\":" + finished(outcome);
  end_event(out);
}

void ResponsesWriter::fail(std::string& out, const Error& error) {
  response_event(out, "response.failed", nullptr, &error);
}

std::string ResponsesWriter::body(Outputs, const Outcome& outcome) {
  return finished(outcome);
}

}  // namespace godwit::server
