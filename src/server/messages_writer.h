// An answer of /v1/messages: one message of content blocks, or the events that build it (api spec §4.11).
#pragma once

#include <string>
#include <vector>

#include "server/error_response.h"
#include "server/parsed_output.h"
#include "server/wire.h"

namespace godwit::server {

class MessagesWriter final : public Wire, public DeltaWriter {
 public:
  MessagesWriter(std::string id, std::string model, ErrorForm errors)
      : id_(std::move(id)), model_(std::move(model)), errors_(std::move(errors)) {}

  // DeltaWriter
  void delta(const chat::Delta& delta, const Progress& progress, std::string* out) override;
  void end(const chat::Finish& finish, int32_t stop_id, const Progress& progress, std::string* out) override;
  // Wire
  void begin(std::string& out, const Usage& counted) override;
  void end(std::string& out, const Outcome& outcome) override;
  void fail(std::string& out, const Error& error) override;
  void silence(std::string& out) override;
  std::string body(Outputs outputs, const Outcome& outcome) override;

 private:
  enum class Kind : uint8_t { thinking, text, tool_use };
  struct Block {
    Kind kind;
    std::string text;  // thinking, text or the JSON of the input; whole only when not streaming
    std::string id;    // of a call
    std::string name;
  };

  void open(Kind kind, const chat::Delta& delta, std::string* out);
  void close(std::string* out);
  void piece(const std::string& text, std::string* out);
  void begin_block_event(std::string& out, std::string_view type) const;
  void append_block(std::string& out, const Block& block, size_t index) const;
  std::string signature(size_t index) const;
  void append_message(std::string& out, const Usage& usage) const;
  void append_stop(std::string& out) const;

  std::string id_;
  std::string model_;
  ErrorForm errors_;
  std::vector<Block> blocks_;
  bool open_ = false;   // the last block may still grow
  bool begun_ = false;  // message_start has been sent
  bool calls_ = false;
  bool ended_ = false;
  chat::Finish finish_;
};

}  // namespace godwit::server
