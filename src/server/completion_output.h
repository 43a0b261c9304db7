// A choice of /v1/completions: the raw text of the ids, tags included (api spec §4.6).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/stop_strings.h"
#include "server/choice_output.h"
#include "tokenizer/detokenizer.h"

namespace godwit::server {

struct CompletionOutputOptions {
  int index = 0;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::vector<int32_t> stop_ids;  // ids that end the choice and give no text: the model's and the request's
  std::vector<int32_t> request_stop_ids;
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool logprobs = false;
  std::string echo;                    // comes first
  std::vector<int32_t> scored_prompt;  // in place of echo: comes first, and each of its ids has a logprob
  bool discard = false;                // nothing was to be generated (max_tokens 0)
};

class CompletionOutput final : public ChoiceOutput {
 public:
  CompletionOutput(CompletionOutputOptions options, const ChunkFrame& frame);

  void begin(std::string* out) override;
  size_t push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
              std::string* out) override;
  void push_scores(std::span<const engine::Token> scores, std::span<const engine::TopLogprobs> top,
                   std::string* out) override;
  bool stopped() const override { return stop_.matched().has_value(); }
  void end(engine::FinishReason reason, int32_t stop_id, std::string* out) override;
  void append_choice(std::string& out) override;
  std::string_view finish() const override { return finish_; }
  double mean_logprob() const override { return used_ > 0 ? logprob_sum_ / static_cast<double>(used_) : 0; }
  void set_index(int index) override { options_.index = index; }

 private:
  void note_token(int32_t id);
  void note_logprob(const engine::Token& token, const engine::TopLogprobs* top);
  void show(std::string_view text);
  void append_logprobs(std::string& out);
  void append_finish(std::string& out) const;
  void settle(std::string* out);

  CompletionOutputOptions options_;
  const ChunkFrame& frame_;
  tokenizer::Detokenizer detokenizer_;
  tokenizer::Detokenizer prompt_detokenizer_;
  chat::StopStrings stop_;
  std::string piece_;  // text that no chunk has carried yet; all of it when not streaming
  std::string_view finish_ = "stop";
  int32_t stop_id_ = -1;
  double logprob_sum_ = 0;
  size_t scores_ = 0;       // of the prompt's ids, so far
  size_t code_points_ = 0;  // of the text that the ids so far have given
  struct {
    std::string tokens, values, alternatives, offsets;  // JSON array bodies
  } logprobs_;
};

}  // namespace godwit::server
