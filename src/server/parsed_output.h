// A choice whose ids go through the one output parser (api spec §3): reasoning, content and tool calls as
// deltas. A DeltaWriter gives them the form of a protocol; streaming and not streaming get the same deltas.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/id_front_end.h"
#include "server/choice_output.h"

namespace godwit::server {

// Of one choice so far.
struct Progress {
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
};

// `out` is null when not streaming: the writer keeps what the body will need.
class DeltaWriter {
 public:
  virtual ~DeltaWriter() = default;

  virtual void begin(std::string* /*out*/) {}
  // Before the delta that the id leads to; only with ParsedOutputOptions::logprobs.
  virtual void logprob(bool /*reasoning*/, const engine::Token&, const engine::TopLogprobs*) {}
  virtual void delta(const chat::Delta& delta, const Progress& progress, std::string* out) = 0;
  // The last call. stop_id: the id among the request's own stop ids that ended the choice, -1 otherwise.
  virtual void end(const chat::Finish& finish, int32_t stop_id, const Progress& progress,
                   std::string* out) = 0;
  // This choice in the "choices" of a body; for wires that have such a list.
  virtual void append_choice(std::string& /*out*/) {}
};

struct ParsedOutputOptions {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  tokenizer::ControlIds control_ids;
  chat::IdOptions ids;
  chat::ParserOptions parser;
  std::vector<int32_t> request_stop_ids;
  bool logprobs = false;
  bool include_reasoning = true;
};

class ParsedOutput final : public ChoiceOutput {
 public:
  ParsedOutput(ParsedOutputOptions options, std::shared_ptr<DeltaWriter> writer);

  void begin(std::string* out) override { writer_->begin(out); }
  size_t push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
              std::string* out) override;
  bool stopped() const override { return front_.parser().stopped(); }
  void end(engine::FinishReason reason, int32_t stop_id, std::string* out) override;
  void append_choice(std::string& out) override { writer_->append_choice(out); }

  int64_t reasoning_tokens() const override { return front_.parser().reasoning_tokens(); }
  int64_t roll_backs() const override { return front_.parser().roll_backs(); }
  std::string_view finish() const override { return chat::name_of(front_.parser().finish().reason); }

 private:
  void settle(std::string* out);
  Progress progress() const { return {used_, reasoning_tokens()}; }

  ParsedOutputOptions options_;
  std::shared_ptr<DeltaWriter> writer_;
  chat::IdFrontEnd front_;
};

}  // namespace godwit::server
