// An answer of /v1/responses: one response object of output items, or the events that build it (api spec
// §4.10).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/parsed_output.h"
#include "server/response_items.h"
#include "server/wire.h"

namespace godwit::server {

class ResponsesWriter final : public Wire, public DeltaWriter {
 public:
  // Called with the finished response object and the assistant's message in the chat form.
  using Keep = std::function<void(std::string body, std::string message)>;

  // `head`: {"id":…,… without the closing brace: the members of the response object that never change.
  // `seed`: what item ids are made of. `keep` may be empty.
  ResponsesWriter(std::string head, std::string seed, Keep keep)
      : head_(std::move(head)), seed_(std::move(seed)), keep_(std::move(keep)) {}

  using Wire::begin;
  // DeltaWriter
  void begin(std::string* out) override;
  void delta(const chat::Delta& delta, const Progress& progress, std::string* out) override;
  void end(const chat::Finish& finish, int32_t stop_id, const Progress& progress, std::string* out) override;
  // Wire
  void end(std::string& out, const Outcome& outcome) override;
  void fail(std::string& out, const Error& error) override;
  std::string body(Outputs outputs, const Outcome& outcome) override;

 private:
  void open(ItemKind kind, const chat::Delta& delta, std::string* out);
  void close(ItemStatus status, std::string* out);
  void piece(const std::string& text, std::string* out);
  void begin_numbered(std::string& out, std::string_view type);
  void begin_item_event(std::string& out, std::string_view type);
  void item_event(std::string& out, std::string_view type);
  void part_event(std::string& out, std::string_view suffix);
  void response_event(std::string& out, std::string_view type, const Usage* usage, const Error* error);
  void append_response(std::string& out, const Usage* usage, const Error* error) const;
  std::string finished(const Outcome& outcome);

  std::string head_;
  std::string seed_;
  Keep keep_;
  std::vector<OutputItem> items_;
  int64_t sequence_ = 0;
  bool promoted_ = false;
  ItemStatus status_ = ItemStatus::in_progress;
};

}  // namespace godwit::server
