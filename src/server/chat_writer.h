// A choice of /v1/chat/completions: chunks with deltas, or a message (api spec §3.6, §3.7).
#pragma once

#include <memory>
#include <string>

#include "server/parsed_output.h"

namespace godwit::server {

class ChatWriter final : public DeltaWriter {
 public:
  struct Options {
    int index = 0;
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
    bool logprobs = false;
    bool include_reasoning = true;  // also in logprobs
  };

  // `frame` outlives the object.
  ChatWriter(Options options, const ChunkFrame& frame) : options_(std::move(options)), frame_(frame) {}

  void begin(std::string* out) override;
  void logprob(bool reasoning, const engine::Token& token, const engine::TopLogprobs* top) override;
  void delta(const chat::Delta& delta, const Progress& progress, std::string* out) override;
  void end(const chat::Finish& finish, int32_t stop_id, const Progress& progress, std::string* out) override;
  void append_choice(std::string& out) override;

 private:
  void append_delta(std::string& out, const chat::Delta& delta, const Progress& progress);
  void append_logprobs(std::string& out);
  void append_finish(std::string& out) const;
  void append_message(std::string& out) const;

  Options options_;
  const ChunkFrame& frame_;
  chat::Message message_;         // not streaming
  std::string content_logprobs_;  // entries that no chunk has carried yet
  std::string reasoning_logprobs_;
  chat::Finish finish_;
  int32_t stop_id_ = -1;
};

}  // namespace godwit::server
