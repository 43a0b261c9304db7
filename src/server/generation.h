// One generating exchange from submission to its last byte: n sequences in the engine, one answer to the
// client. Lives on the connection's thread; the engine's delivery thread only posts to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/service.h"
#include "metrics/metrics.h"
#include "server/choice_output.h"
#include "server/error_response.h"
#include "server/http.h"
#include "server/wire.h"

namespace godwit::server {

// What the text workers prepare.
struct GenerationPlan {
  std::string route;  // "chat", "messages", …: for the log and metrics
  ErrorForm errors;   // of refusals; its request_id is the exchange's
  std::string key;    // name of the client's API key, for the log
  uint64_t key_salt = 0;
  int64_t received_ns = 0;
  std::string response_id;  // "chatcmpl-…"
  int64_t created = 0;      // Unix time
  bool stream = false;
  Usage counted;  // prompt and cached tokens of all choices
  int choices_per_prompt = 1;
  int kept_per_prompt = 0;  // best_of: the so many most likely are returned, when not streaming; 0 = all
  std::shared_ptr<Wire> wire;
  std::vector<engine::Request> requests;  // one a choice, without sink
  // One a request; they may refer to the wire and to the plan, which outlive them and never move.
  std::vector<std::unique_ptr<ChoiceOutput>> outputs;
};

constexpr size_t kSinkTokens = 256;  // ids that may wait for a slow reader before its sequence pauses

// Submits all sequences and answers on `writer`. On refusal by the engine the answer is that error and
// nothing runs.
void start_generation(std::unique_ptr<GenerationPlan> plan, engine::Service& service,
                      metrics::Metrics& metrics, const std::shared_ptr<ResponseWriter>& writer);

}  // namespace godwit::server
