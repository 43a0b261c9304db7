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
#include "server/http.h"

namespace godwit::server {

// What the text workers prepare.
struct GenerationPlan {
  std::string route;  // "chat" | "completions", for the log and metrics
  std::string request_id;
  int64_t received_ns = 0;
  std::string body_head;  // {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":…,"seed":…
  ChunkFrame frame;
  bool stream = false;
  bool usage_chunk = false;  // stream_options.include_usage
  int choices_per_prompt = 1;
  int kept_per_prompt = 0;  // best_of: the so many most likely are returned, when not streaming; 0 = all
  std::vector<engine::Request> requests;  // one a choice, without sink
  // One a request; they may refer to the plan's frame, which outlives them and never moves.
  std::vector<std::unique_ptr<ChoiceOutput>> outputs;
};

constexpr size_t kSinkTokens = 256;  // ids that may wait for a slow reader before its sequence pauses

// Submits all sequences and answers on `writer`. On refusal by the engine the answer is that error and
// nothing runs.
void start_generation(std::unique_ptr<GenerationPlan> plan, engine::Service& service,
                      metrics::Metrics& metrics, const std::shared_ptr<ResponseWriter>& writer);

}  // namespace godwit::server
