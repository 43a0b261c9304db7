// Gates that need schedule and cache: the whole engine runs.
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <thread>

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

Result<std::unique_ptr<engine::Engine>> start(const std::filesystem::path& model_dir, const RigOptions& rig,
                                              int64_t cache_tokens = 0, int64_t host_cache = 0) {
  engine::EngineOptions options;
  options.model_dir = model_dir;
  options.device = rig.backend;
  options.threads = rig.threads;
  options.kv = rig.cache;
  options.context = rig.context;
  options.max_sequences = 4;
  options.prefill_tokens = 256;
  options.cache_tokens = cache_tokens > 0 ? cache_tokens : 4 * rig.context;
  options.host_cache = host_cache;
  return engine::Engine::start(options, std::vector<bool>(1 << 18, true));
}

Result<Answer> ask(engine::Engine& engine, const std::vector<int32_t>& prompt, float temperature,
                   int64_t most, std::span<const int32_t> forced = {}) {
  engine::Reader reader;
  engine::Request request;
  request.prompt = prompt;
  request.forced.assign(forced.begin(), forced.end());
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

Result<void> ask_nothing(engine::Engine& engine, const std::vector<int32_t>& prompt) {
  GODWIT_ASSIGN(const Answer ignored, ask(engine, prompt, 0, 1));
  static_cast<void>(ignored);
  return {};
}

// The counters once the last request has left the engine; its reader may be a moment ahead of them.
engine::Status settled(const engine::Engine& engine) {
  engine::Status status = engine.status();
  while (status.running + status.waiting > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = engine.status();
  }
  return status;
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

Result<Report> gate_restored(const std::filesystem::path& model_dir, const RigOptions& rig) {
  constexpr int64_t kDrawn = 24, kHost = 256 << 20;
  Report report;
  for (const float temperature : {0.f, 1.f}) {
    const std::vector<int32_t> prompt = random_ids(600, 31);
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> kept, start(model_dir, rig));
    GODWIT_ASSIGN(const Answer cold, ask(*kept, prompt, temperature, kDrawn));
    // One context of pages: three long prompts push everything before them to the host.
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> engine, start(model_dir, rig, rig.context, kHost));
    const auto push_out = [&]() -> Result<void> {
      for (uint32_t seed = 32; seed < 35; ++seed)
        GODWIT_TRY(ask_nothing(*engine, random_ids(rig.context - 100, seed)));
      return {};
    };
    GODWIT_ASSIGN(const Answer first, ask(*engine, prompt, temperature, kDrawn));
    GODWIT_TRY(push_out());
    const uint64_t before = settled(*engine).host_hits;
    GODWIT_ASSIGN(const Answer back, ask(*engine, prompt, temperature, kDrawn));
    report.check(settled(*engine).host_hits == before + 1, "nothing came back from the host");
    report.check(back.cached == 576, "{} tokens came back instead of 576", back.cached);
    report.check(first.same_bits(cold) && back.same_bits(cold),
                 "temperature {}: the host tier changes the answer", temperature);

    // A request makes room in the middle of its answer, and continues from the host.
    fault::arm("schedule.preempt", 8, 2);
    GODWIT_ASSIGN(const Answer moved, ask(*engine, prompt, temperature, kDrawn));
    fault::disarm_all();
    const uint64_t moves = settled(*engine).preemptions;
    report.check(moves == 2, "{} preemptions instead of 2", moves);
    report.check(moved.same_bits(cold), "temperature {}: making room changes the answer", temperature);

    // The gate must notice a broken copy, and a copy known to be broken must not be used.
    GODWIT_TRY(push_out());
    fault::arm("mutant.host", 0, 1);
    GODWIT_ASSIGN(const Answer broken, ask(*engine, prompt, temperature, kDrawn));
    fault::disarm_all();
    report.check(!broken.same_bits(cold), "mutant.host goes unnoticed");
    fault::arm("host.damage", 0, -1);
    fault::arm("schedule.preempt", 8, 1);
    GODWIT_ASSIGN(const Answer damaged, ask(*engine, random_ids(600, 36), temperature, kDrawn));
    fault::disarm_all();
    GODWIT_ASSIGN(const Answer undamaged, ask(*kept, random_ids(600, 36), temperature, kDrawn));
    report.check(damaged.same_bits(undamaged), "temperature {}: a damaged copy reached the answer",
                 temperature);
  }
  return report;
}

Result<Report> gate_resumed(const std::filesystem::path& model_dir, const RigOptions& rig) {
  constexpr int64_t kDrawn = 40;
  Report report;
  for (const float temperature : {0.f, 1.f}) {
    const std::vector<int32_t> prompt = random_ids(300, 41);
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> engine, start(model_dir, rig));
    GODWIT_ASSIGN(const Answer whole, ask(*engine, prompt, temperature, kDrawn));
    // Sent away three times without a host tier: recomputed, the drawn tokens as forced rows.
    fault::arm("schedule.preempt", 12, 3);
    GODWIT_ASSIGN(const Answer recomputed, ask(*engine, prompt, temperature, kDrawn));
    fault::disarm_all();
    const uint64_t moves = settled(*engine).preemptions;
    report.check(moves == 3, "{} preemptions instead of 3", moves);
    report.check(recomputed.same_bits(whole), "temperature {}: recomputing changes the answer", temperature);
    // Another replica continues after 17 tokens.
    GODWIT_ASSIGN(const std::unique_ptr<engine::Engine> other, start(model_dir, rig));
    GODWIT_ASSIGN(const Answer rest,
                  ask(*other, prompt, temperature, kDrawn, std::span(whole.tokens).first(17)));
    const Answer expected{{whole.tokens.begin() + 17, whole.tokens.end()},
                          {whole.logprobs.begin() + 17, whole.logprobs.end()}};
    report.check(rest.same_bits(expected), "temperature {}: a resumed answer differs", temperature);
    // The gate must notice a state that is off by one token: one of the forced ids is not run.
    std::vector<int32_t> lacking(whole.tokens.begin(), whole.tokens.begin() + 17);
    lacking.erase(lacking.begin() + 5);
    GODWIT_ASSIGN(const Answer broken, ask(*other, prompt, temperature, kDrawn, lacking));
    report.check(!Answer{{broken.tokens.begin() + 1, broken.tokens.end()},
                         {broken.logprobs.begin() + 1, broken.logprobs.end()}}
                      .same_bits(expected),
                 "a forced token that is lacking goes unnoticed");
  }
  return report;
}

}  // namespace godwit::selftest
