// What one choice's sampled ids become for the client. The stream and the whole body are the same sequence of
// pieces; the two forms differ only in where the pieces go.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/token_sink.h"

namespace godwit::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
};
void append_usage(std::string& out, const Usage& usage);  // the JSON object

// Text that every event of one request has in common, built once: "data: {…,"choices":[{"index":" and what
// follows the choice. Chunks are written as prefix, index, the choice's own members, suffix.
struct ChunkFrame {
  std::string prefix;
  std::string suffix;              // "}]}\n\n", or with "usage":null
  const Usage* counted = nullptr;  // set: usage so far on every chunk, with these prompt and cached tokens

  void open(std::string& out, int index) const;
  // Of this choice so far; only shown with `counted`.
  void close(std::string& out, int64_t completion_tokens, int64_t reasoning_tokens) const;
};

class ChoiceOutput {
 public:
  virtual ~ChoiceOutput() = default;

  // Streaming: events go to `out`. Not streaming: `out` is null and pieces are kept.
  virtual void begin(std::string* out) = 0;
  // Returns how many of the ids were used; fewer than all when the output ended by itself (stop string, the
  // only call allowed is complete): the rest does not exist for the client.
  virtual size_t push(std::span<const engine::Token> tokens, std::span<const engine::TopLogprobs> top,
                      std::string* out) = 0;
  // Log probabilities of the next ids of the prompt, before any token.
  virtual void push_scores(std::span<const engine::Token>, std::span<const engine::TopLogprobs>,
                           std::string*) {}
  virtual bool stopped() const = 0;
  // The last call: `stop_id` is the id that ended the choice (request or model), -1 otherwise.
  virtual void end(engine::FinishReason reason, int32_t stop_id, std::string* out) = 0;
  // Not streaming, after end(): this choice's object of "choices".
  virtual void append_choice(std::string& out) = 0;

  virtual int64_t reasoning_tokens() const { return 0; }
  virtual int64_t roll_backs() const { return 0; }
  virtual std::string_view finish() const = 0;  // "stop", "length", "tool_calls"
  // For best_of: how likely the model finds the output, and its place among those that are returned.
  virtual double mean_logprob() const { return 0; }
  virtual void set_index(int) {}
  int64_t used_tokens() const { return used_; }

 protected:
  int64_t used_ = 0;  // ids sampled for the client, the stop id included
};

}  // namespace godwit::server
