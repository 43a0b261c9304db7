// What surrounds the choices of an answer. Each protocol has one: the events a stream begins and ends with,
// the body of an answer in one piece, what an error is once the stream has begun.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "server/choice_output.h"

namespace godwit::server {

// Numbers of a whole answer.
struct Outcome {
  Usage usage;
  engine::Start start;  // of the first prompt
  double queued_ms = 0;
  double first_token_ms = 0;
  double tokens_per_second = 0;
};

using Outputs = std::span<const std::unique_ptr<ChoiceOutput>>;

class Wire {
 public:
  virtual ~Wire() = default;

  // Streams. Once, when the engine has begun with the prompt: `counted` has prompt and cached tokens.
  virtual void begin(std::string& /*out*/, const Usage& /*counted*/) {}
  virtual void end(std::string& out, const Outcome& outcome) = 0;
  // The last event, in place of end(); begin() may not have been called.
  virtual void fail(std::string& out, const Error& error) = 0;
  // Nothing has been sent for a while and clients have idle timeouts.
  virtual void silence(std::string& out) { out += ":\n\n"; }

  // Not streaming, after the end of every choice.
  virtual std::string body(Outputs outputs, const Outcome& outcome) = 0;
};

}  // namespace godwit::server
