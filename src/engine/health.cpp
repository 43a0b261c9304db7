// The one fatal path (design §6) and the thread that finds a step which never ends.
#include <fmt/format.h>

#include <chrono>

#include "base/allocation.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/record.h"
#include "engine/step_dump.h"

namespace godwit::engine {
namespace {

constexpr std::chrono::milliseconds kWatch{20};
constexpr int64_t kSilenceNs = 10'000'000'000;  // pending work and no progress for so long is worth a line
constexpr int64_t kNsPerS = 1'000'000'000;

}  // namespace

void Engine::watch() {
  bool told = false;
  while (!stopping_) {
    std::this_thread::sleep_for(kWatch);
    if (options_.step_deadline_s > 0) watch_step(options_.step_deadline_s * kNsPerS);
    // Slow is not dead: a line in the log, /health says it, and nobody is killed (pains C7).
    const int64_t silent = clock_.now_ns() - last_progress_ns_;
    const bool quiet = in_flight_ > 0 && silent > kSilenceNs && health_ != Health::dead;
    if (quiet && !told)
      log_warn("{} requests are pending and the engine has made no progress for {} s", in_flight_.load(),
               silent / kNsPerS);
    told = quiet;
  }
}

// Takes the engine over from a thread that is stuck in a step, ends every stream and keeps refusing what
// still arrives.
void Engine::watch_step(int64_t deadline_ns) {
  int64_t started = step_started_ns_;
  if (started <= kNoStep || clock_.now_ns() - started < deadline_ns) return;
  if (!step_started_ns_.compare_exchange_strong(started, kTaken)) return;  // it has just ended
  die(fmt::format("step {} has not ended after {} s", plan_.step, deadline_ns / kNsPerS));
  mourn();
}

// Readiness is false at once, then the step is written down, then every stream ends with an error event.
void Engine::die(std::string_view reason) {
  const AllowAllocation failing;
  health_ = Health::dead;
  log_error("engine failed: {}; every stream ends with an error", reason);
  {
    std::lock_guard lock(status_mutex_);
    status_.dead_reason = reason;
  }
  masks_->await();  // they are made from what ends here
  dump(reason);
  scheduler_->fail_all(Failure::engine_died);
  publish();
}

// What slips in between a submit() that still saw a living engine and the end of the process.
void Engine::mourn() {
  const AllowAllocation failing;
  while (!stopping_) {
    if (auto s = inbox_.pop_for(kWatch)) on_end(std::move(*s), FinishReason::error, -1, Failure::engine_died);
    flush_asked_for(false);
    publish();
  }
  while (auto s = inbox_.try_pop()) on_end(std::move(*s), FinishReason::error, -1, Failure::engine_died);
  flush_asked_for(false);
  publish();
}

void Engine::dump(std::string_view reason) const {
  if (options_.dump_dir.empty() || plan_.sequences.empty()) return;
  StepDump out;
  out.build = options_.build;
  out.model = options_.model_dir.string();
  out.reason = reason;
  out.sizes = options_;
  out.kv = *options_.kv;
  out.plan = plan_.packed();
  scheduler_->for_each([&](const schedule::Sequence& s) {
    for (const schedule::PlanSequence& p : plan_.sequences)
      if (p.request == s.number)
        out.sequences.push_back(
            {s.number, static_cast<const Record*>(s.owner)->id, s.prompt_tokens, s.tokens});
  });
  out.vocabulary = runs_of(has_token_);
  for (int64_t row = 0; row < masks_->count(); ++row)
    out.masks.push_back(runs_of(masks_->mask(row), info_.vocabulary));
  log_.for_each([&](const StepRecord& r) { out.steps.push_back(r); });
  const auto path = write_step_dump(options_.dump_dir, out);
  if (path.ok()) {
    log_error("the step is in {}: godwit replay-step {}", path->string(), path->string());
  } else {
    log_error("the step could not be written: {}", path.error().message);
  }
}

}  // namespace godwit::engine
