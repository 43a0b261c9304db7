// /v1/chat/completions and /v1/completions: chunks of one shape, a usage chunk if asked for, "[DONE]".
#pragma once

#include <string>

#include "server/wire.h"

namespace godwit::server {

class OpenAiWire final : public Wire {
 public:
  // `head`: {"id":…,"object":…,"created":…,"model":… without the closing brace, the same for every chunk.
  // `counted` outlives the object; it is only read with `continuous`: usage so far on every chunk.
  OpenAiWire(std::string head, bool usage_chunk, bool continuous, const Usage& counted);

  const ChunkFrame& frame() const { return frame_; }

  void end(std::string& out, const Outcome& outcome) override;
  void fail(std::string& out, const Error& error) override;
  std::string body(Outputs outputs, const Outcome& outcome) override;

 private:
  std::string head_;
  bool usage_chunk_;
  ChunkFrame frame_;
};

}  // namespace godwit::server
