// Gates that need schedule and cache: the whole engine runs.
#include <cstring>
#include <random>

#include "base/fault.h"
#include "engine/engine.h"
#include "engine/reader.h"
#include "selftest/gates.h"

namespace godwit::selftest {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int64_t cached = 0;

  bool same_bits(const Answer& other) const {
    return tokens == other.tokens && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0;
  }
};

Result<std::unique_ptr<engine::Engine>> start(const std::filesystem::path& model_dir, const RigOptions& rig) {
  engine::EngineOptions options;
  options.model_dir = model_dir;
  options.threads = rig.threads;
  options.context = rig.context;
  options.max_sequences = 4;
  options.prefill_tokens = 256;
  options.cache_tokens = 4 * rig.context;
  return engine::Engine::start(options, std::vector<bool>(1 << 18, true));
}

Result<Answer> ask(engine::Engine& engine, const std::vector<int32_t>& prompt, float temperature,
                   int64_t most) {
  engine::Reader reader;
  engine::Request request;
  request.prompt = prompt;
  request.sampling.temperature = temperature;
  request.sampling.seed = 11;
  request.sampling.top_logprobs = 0;
  request.stop.max_tokens = most;
  request.stop.ignore_eos = true;
  request.sink = reader.sink;
  GODWIT_TRY(engine.submit(std::move(request)));
  if (!reader.read() || reader.end->reason != engine::FinishReason::length)
    return make_error(ErrorCode::internal, "", "the engine did not answer");
  return Answer{reader.tokens, reader.logprobs, reader.start->cached_tokens};
}

std::vector<int32_t> random_ids(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 300);  // plain text ids of every small model
  return ids;
}

}  // namespace

Result<Report> gate_cached(const std::filesystem::path& model_dir, const RigOptions& rig) {
  constexpr int64_t kDrawn = 24;
  Report report;
  for (const float temperature : {0.f, 1.f}) {
    // Cold answers come from engines that have seen nothing.
    const std::vector<int32_t> trunk = random_ids(600, 21);
    std::vector<int32_t> other = trunk;  // leaves the trunk inside a block
    other.resize(330);
    const std::vector<int32_t> tail = random_ids(200, 22);
    other.insert(other.end(), tail.begin(), tail.end());
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> cold_engine, start(model_dir, rig));
    GODWIT_ASSIGN(const Answer cold, ask(*cold_engine, trunk, temperature, kDrawn));
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> other_engine, start(model_dir, rig));
    GODWIT_ASSIGN(const Answer cold_other, ask(*other_engine, other, temperature, kDrawn));
    std::vector<int32_t> next = trunk;  // the next turn replays the answer
    next.insert(next.end(), cold.tokens.begin(), cold.tokens.end());
    next.insert(next.end(), tail.begin(), tail.end());
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> next_engine, start(model_dir, rig));
    GODWIT_ASSIGN(const Answer cold_next, ask(*next_engine, next, temperature, kDrawn));

    GODWIT_ASSIGN(const Answer warm, ask(*cold_engine, trunk, temperature, kDrawn));
    report.check(warm.cached == 576, "the same prompt found {} cached tokens instead of 576", warm.cached);
    report.check(warm.same_bits(cold), "temperature {}: a hit on the same prompt changes the answer",
                 temperature);
    GODWIT_ASSIGN(const Answer warm_next, ask(*cold_engine, next, temperature, kDrawn));
    report.check(warm_next.cached == 576, "the next turn found {} cached tokens instead of 576",
                 warm_next.cached);
    report.check(warm_next.same_bits(cold_next), "temperature {}: a hit changes the next turn", temperature);
    GODWIT_ASSIGN(const Answer branch, ask(*cold_engine, other, temperature, kDrawn));
    report.check(branch.same_bits(cold_other), "temperature {}: a branch changes the answer", temperature);
    GODWIT_ASSIGN(const Answer branch_again, ask(*cold_engine, other, temperature, kDrawn));
    report.check(branch_again.cached == 512, "the branch found {} cached tokens instead of 512",
                 branch_again.cached);
    report.check(branch_again.same_bits(cold_other), "temperature {}: a hit on the branch changes it",
                 temperature);

    // The gate must notice a broken restore.
    for (const char* mutant : {"mutant.window", "mutant.state", "mutant.page"}) {
      fault::arm(mutant, 0, 1);
      GODWIT_ASSIGN(const Answer broken, ask(*cold_engine, trunk, temperature, kDrawn));
      fault::disarm_all();
      report.check(!broken.same_bits(cold), "{} goes unnoticed", mutant);
    }
  }
  return report;
}

}  // namespace godwit::selftest
