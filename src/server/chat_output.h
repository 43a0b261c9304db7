// A choice of /v1/chat/completions: ids through the one output parser to deltas or a message (api spec §3.6,
// §3.7).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/id_front_end.h"
#include "server/choice_output.h"

namespace godwit::server {

struct ChatOutputOptions {
  int index = 0;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  tokenizer::ControlIds control_ids;
  chat::IdOptions ids;
  chat::ParserOptions parser;
  std::vector<int32_t> request_stop_ids;  // named as stop_reason when one of them ends the choice
  bool logprobs = false;
  bool include_reasoning = true;
};

class ChatOutput final : public ChoiceOutput {
 public:
  // `frame` outlives the object.
  ChatOutput(ChatOutputOptions options, const ChunkFrame& frame);

  void begin(std::string* out) override;
  size_t push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
              std::string* out) override;
  bool stopped() const override { return front_.parser().stopped(); }
  void end(engine::FinishReason reason, int32_t stop_id, std::string* out) override;
  void append_choice(std::string& out) override;

  int64_t reasoning_tokens() const override { return front_.parser().reasoning_tokens(); }
  int64_t roll_backs() const override { return front_.parser().roll_backs(); }
  std::string_view finish() const override;

 private:
  void note_logprob(const engine::Token& token, const engine::TopLogprobs* top);
  void settle(std::string* out);
  void append_delta(std::string& out, const chat::Delta& delta);
  void close_chunk(std::string& out);
  void append_logprobs(std::string& out);
  void append_finish(std::string& out) const;
  void append_message(std::string& out) const;

  ChatOutputOptions options_;
  const ChunkFrame& frame_;
  chat::IdFrontEnd front_;
  chat::Message message_;         // not streaming
  std::string content_logprobs_;  // entries that no chunk has carried yet
  std::string reasoning_logprobs_;
  int32_t stop_id_ = -1;
};

}  // namespace godwit::server
