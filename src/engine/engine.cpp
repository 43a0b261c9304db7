#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>

#include "base/allocation.h"
#include "base/fault.h"
#include "engine/record.h"

namespace godwit::engine {
namespace {

using std::chrono::milliseconds;

// How long an idle or fully paused engine sleeps at most before it looks at cancellations and readers again.
constexpr milliseconds kIdlePoll{20};
constexpr milliseconds kPausedPoll{1};

Error not_running() {
  return make_error(ErrorCode::unavailable, "", "the engine does not run; there is no cache to flush");
}

// What a row of the sequence may hand out at the least: of a scored prompt a whole page, or what is left of
// it.
int64_t needed_room(const schedule::Sequence& s) {
  if (!s.scored || s.decoding()) return 1;
  return std::min(kernels::kPageTokens, s.prompt_tokens - s.computed);
}

TopLogprobs top_of(const sample::Sampled& drawn) {
  TopLogprobs top;
  top.count = drawn.top_count;
  std::copy_n(drawn.top_ids, drawn.top_count, top.ids);
  std::copy_n(drawn.top_logprobs, drawn.top_count, top.logprobs);
  return top;
}

}  // namespace

Engine::~Engine() {
  stopping_ = true;
  inbox_.close();
  if (engine_thread_.joinable()) engine_thread_.join();
  if (watchdog_thread_.joinable()) watchdog_thread_.join();
  outbox_.close();
  if (delivery_thread_.joinable()) delivery_thread_.join();
}

Result<void> Engine::submit(Request request) {
  const Health health = health_.load();
  if (health != Health::ready) {
    const char* why = health == Health::draining ? "the server is shutting down"
                      : health == Health::dead   ? "the engine has failed"
                                                 : "the model is still loading";
    return make_error(ErrorCode::unavailable, "", "{}; try again later or on another replica", why);
  }
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t forced = static_cast<int64_t>(request.forced.size());
  const int64_t total = prompt + request.stop.max_tokens;
  GODWIT_ASSERT(prompt >= 1 && request.stop.max_tokens >= 1 && forced < request.stop.max_tokens &&
                request.sink);
  GODWIT_ASSERT(!request.prompt_logprobs || (forced == 0 && request.sampling.top_logprobs >= 0));
  if (total > info_.context)
    return make_error(
        ErrorCode::context_length, "messages",
        "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
        "messages, {} in the completion). Please reduce the length of the messages or completion.",
        info_.context, total, prompt, request.stop.max_tokens);
  if (in_flight_.fetch_add(1) >= info_.max_waiting + info_.max_sequences) {
    in_flight_.fetch_sub(1);
    return make_error(ErrorCode::overloaded, "",
                      "{} requests are running and {} wait, which is the limit; try again in a moment",
                      info_.max_sequences, info_.max_waiting);
  }

  auto record = std::make_unique<Record>();
  record->id = std::move(request.id);
  record->sink = std::move(request.sink);
  record->wants_history = request.sampling.needs_history();
  if (request.sampling.top_logprobs >= 0) record->sink->keep_logprobs(request.prompt_logprobs);
  auto s = std::make_unique<schedule::Sequence>();
  s->number = next_number_.fetch_add(1);
  s->keys = request.block_keys.empty() ? cache::block_keys(request.prompt, request.cache_salt)
                                       : std::move(request.block_keys);
  s->tokens = std::move(request.prompt);
  s->tokens.reserve(static_cast<size_t>(total));
  s->tokens.insert(s->tokens.end(), request.forced.begin(), request.forced.end());
  s->prompt_tokens = prompt;
  s->forced_end = prompt + forced;
  s->max_tokens = request.stop.max_tokens;
  s->min_tokens = request.stop.min_tokens;
  s->ignore_eos = request.stop.ignore_eos;
  s->stop_ids = std::move(request.stop.stop_ids);
  const SamplingParams& p = request.sampling;
  s->sampling = {.seed = p.seed,
                 .prompt_index = request.prompt_index,
                 .choice_index = request.choice_index,
                 .temperature = p.temperature,
                 .top_p = p.top_p,
                 .min_p = p.min_p,
                 .top_k = p.top_k,
                 .repetition_penalty = p.repetition_penalty,
                 .presence_penalty = p.presence_penalty,
                 .frequency_penalty = p.frequency_penalty,
                 .history = record->wants_history ? 1 : 0,
                 .top_logprobs = p.top_logprobs};
  s->bias = p.logit_bias;
  s->scored = request.prompt_logprobs;
  s->masked = request.rules.any();
  if (s->masked) record->constraint.emplace(std::move(request.rules));
  s->priority = request.priority;
  s->deadline_ns = request.deadline_ns;
  s->submitted_ns = clock_.now_ns();
  s->lease.reserve(total);
  s->owner = record.release();
  if (!inbox_.try_push(std::move(s))) {
    // Only closing fills it: in_flight_ is below its capacity.
    in_flight_.fetch_sub(1);
    return make_error(ErrorCode::unavailable, "", "the server is shutting down; try another replica");
  }
  return {};
}

void Engine::run() {
  const ForbidAllocation forbidden;
  while (!stopping_) {
    const bool idle = scheduler_->idle();
    if (auto s = idle ? inbox_.pop_for(kIdlePoll) : inbox_.try_pop()) {
      do {
        GODWIT_ASSERT(scheduler_->add(std::move(*s)));
      } while ((s = inbox_.try_pop()));
    }
    const int64_t deadline = drain_deadline_ns_.load();
    if (deadline != 0 && clock_.now_ns() > deadline && !scheduler_->idle())
      scheduler_->fail_all(Failure::shut_down);
    flush_asked_for(true);
    if (scheduler_->idle()) {
      progress();
    } else if (!step()) {
      return;
    }
    publish();
  }
  scheduler_->fail_all(Failure::shut_down);  // what is left
  while (auto s = inbox_.try_pop()) on_end(std::move(*s), FinishReason::error, -1, Failure::shut_down);
  flush_asked_for(false);
  publish();
}

// False when the engine is dead, and this thread has nothing more to do.
bool Engine::step() {
  bool waits_for_reader = false;
  scheduler_->for_each([&](schedule::Sequence& s) {
    const TokenSink& sink = *static_cast<Record*>(s.owner)->sink;
    s.cancelled = sink.cancelled();
    s.room = static_cast<int64_t>(sink.room());
    s.paused = s.room < needed_room(s);
    waits_for_reader |= s.paused;
  });
  try {
    masks_->clear();
    scheduler_->plan(plan_);
    masks_->begin();
    if (plan_.empty()) {
      // Everything that could run waits for its reader. If nobody does and still nothing can run, that is no
      // progress.
      if (waits_for_reader || scheduler_->idle()) progress();
      if (!scheduler_->idle()) std::this_thread::sleep_for(kPausedPoll);
      return true;
    }
    int64_t started = clock_.now_ns();
    log_.begin(plan_, started);
    step_started_ns_ = started;
    if (GODWIT_FAULT("engine.step")) throw std::runtime_error("fault point engine.step");
    while (GODWIT_FAULT("engine.stall") && !stopping_) std::this_thread::sleep_for(kPausedPoll);
    model_->forward(plan_, drawn_.data(), masks_.get());
    if (!step_started_ns_.compare_exchange_strong(started, kNoStep)) return false;
    log_.end(clock_.now_ns());
    if (GODWIT_FAULT("engine.nan") && !plan_.samples.empty()) drawn_[0].finite = 0;
    scheduler_->apply(plan_, drawn_.data(), {model_->copied_ns(), model_->damaged()});
  } catch (const std::exception& failure) {
    // Whatever the libraries below throw ends here: the state of the step is unknown, so nothing goes on.
    if (step_started_ns_.exchange(kNoStep) == kTaken) return false;
    die(failure.what());
    mourn();
    return false;
  }
  progress();
  return true;
}

void Engine::on_admit(schedule::Sequence& s) {
  Record& record = *static_cast<Record*>(s.owner);
  s.room = static_cast<int64_t>(record.sink->room());
  s.paused = s.room < needed_room(s);
  if (record.wants_history) model_->start_history(s.lease.slot, s.tokens, s.prompt_tokens);
  if (record.started) return;  // admitted again after a preemption
  record.started = true;
  record.sink->push_start({.prompt_tokens = s.prompt_tokens,
                           .cached_tokens = s.lease.cached,
                           .miss = s.lease.miss,
                           .first_difference_at = s.lease.first_difference_at,
                           .queued_ns = s.started_ns - s.submitted_ns});
  hand_over({record.sink, nullptr, nullptr});
  std::lock_guard lock(status_mutex_);
  status_.prompt_tokens += static_cast<uint64_t>(s.prompt_tokens);
  status_.cached_tokens += static_cast<uint64_t>(s.lease.cached);
  ++status_.misses[static_cast<size_t>(s.lease.miss)];
}

void Engine::on_masked_row(schedule::Sequence& s, sample::SamplingRow& row) {
  Constraint& constraint = *static_cast<Record*>(s.owner)->constraint;
  row.mask = masks_->add(constraint, std::span(s.tokens).subspan(static_cast<size_t>(s.prompt_tokens)),
                         row.stop_suppressed == 0);
  // Its mask withholds the end, but not where nothing else is left.
  if (constraint.has_grammar()) row.stop_suppressed = 0;
}

void Engine::on_score(schedule::Sequence& s, const sample::Sampled& drawn) {
  TokenSink& sink = *static_cast<Record*>(s.owner)->sink;
  const TopLogprobs top = top_of(drawn);
  if (sink.push_score({drawn.id, drawn.logprob}, top))
    hand_over({static_cast<Record*>(s.owner)->sink, nullptr, nullptr});
}

void Engine::on_token(schedule::Sequence& s, const sample::Sampled& drawn) {
  TokenSink& sink = *static_cast<Record*>(s.owner)->sink;
  const TopLogprobs top = s.sampling.top_logprobs >= 0 ? top_of(drawn) : TopLogprobs();
  sink.push({drawn.id, drawn.logprob}, s.sampling.top_logprobs >= 0 ? &top : nullptr);
  hand_over({static_cast<Record*>(s.owner)->sink, nullptr, nullptr});
}

void Engine::on_end(std::unique_ptr<schedule::Sequence> s, schedule::FinishReason reason, int32_t stop_id,
                    schedule::Failure failure) {
  const int64_t now = clock_.now_ns();
  const bool failed = reason == FinishReason::error;
  End end;
  end.reason = reason;
  end.stop_id = stop_id;
  end.failure = failure;
  end.completion_tokens = s->completion_tokens();
  end.elapsed_ns = now - s->submitted_ns;
  if (s->first_token_ns != 0) {
    end.prefill_ns = s->first_token_ns - s->started_ns;
    end.decode_ns = now - s->first_token_ns;
  }
  {
    std::lock_guard lock(status_mutex_);
    status_.generated_tokens += static_cast<uint64_t>(s->size() - std::max(s->forced_end, s->prompt_tokens));
    ++(failed ? status_.failed : reason == FinishReason::cancelled ? status_.cancelled : status_.finished);
  }
  std::shared_ptr<TokenSink> sink = static_cast<Record*>(s->owner)->sink;
  sink->push_end(end);
  ++ended_;
  hand_over({std::move(sink), std::move(s), nullptr});
}

void Engine::hand_over(Delivery&& delivery) {
  // The delivery thread only posts and frees; a full box empties within microseconds.
  while (!outbox_.try_push(std::move(delivery))) std::this_thread::yield();
}

void Engine::deliver() {
  while (true) {
    std::optional<Delivery> d = outbox_.pop_for(std::chrono::seconds(1));
    if (!d) {
      if (outbox_.closed()) return;
      continue;
    }
    if (d->flush) {
      d->flush->done(d->flush->made ? Result<Flushed>(d->flush->freed) : not_running());
      continue;
    }
    if (d->sink->claim_wake()) d->sink->wake();
    if (d->ended) delete static_cast<Record*>(d->ended->owner);
  }
}

void Engine::flush_cache(std::function<void(const Result<Flushed>&)> done) {
  const Health health = health_.load();
  if (health != Health::ready && health != Health::draining) return done(not_running());
  auto flush = std::make_unique<Flush>();
  flush->done = std::move(done);
  if (flushes_.try_push(std::move(flush))) return;
  // A queue that took nothing has left it with us.
  flush->done(make_error(ErrorCode::overloaded, "", "{} flushes of the cache wait already", kWaitingFlushes));
}

// Between two steps, or with `possible` false where there will be none.
void Engine::flush_asked_for(bool possible) {
  while (auto flush = flushes_.try_pop()) {
    Flush& f = **flush;
    if (possible) {
      const int64_t pages = cache_->pages_cached(), snapshots = cache_->snapshots_used(),
                    host_pages = cache_->host_pages_used(), host_snapshots = cache_->host_snapshots_used();
      cache_->flush();
      f.freed.pages = pages - cache_->pages_cached();
      f.freed.snapshots = snapshots - cache_->snapshots_used();
      f.freed.host_pages = host_pages - cache_->host_pages_used();
      f.freed.host_snapshots = host_snapshots - cache_->host_snapshots_used();
      f.freed.host_bytes = f.freed.host_pages * model_->layout().page_bytes +
                           f.freed.host_snapshots * model_->layout().committed_bytes;
      f.made = true;
      publish();
    }
    hand_over({nullptr, nullptr, std::move(*flush)});
  }
}

void Engine::publish() {
  std::lock_guard lock(status_mutex_);
  status_.running = scheduler_->running();
  status_.pages_used = cache_->pages_used();
  status_.slots_used = cache_->slots_used();
  status_.pages_cached = cache_->pages_cached();
  status_.snapshots_used = cache_->snapshots_used();
  status_.host_pages_used = cache_->host_pages_used();
  status_.host_snapshots_used = cache_->host_snapshots_used();
  status_.host_slots_used = cache_->host_slots_used();
  status_.evicted_pages = cache_->evictions();
  status_.host_hits = cache_->host_hits();
  status_.prefill_budget = scheduler_->prefill_budget();
  status_.preemptions = scheduler_->preemptions();
  status_.steps = plan_.step;
  // After the snapshot, so that whoever sees nothing in flight also sees what it left.
  in_flight_.fetch_sub(std::exchange(ended_, 0));
}

Status Engine::status() const {
  std::lock_guard lock(status_mutex_);
  Status out = status_;
  // These must be right while the engine thread is stuck in a step and publishes nothing.
  out.health = health_;
  out.waiting = std::max<int64_t>(0, in_flight_ - out.running);
  out.last_progress_ns = last_progress_ns_;
  return out;
}

void Engine::drain(int64_t deadline_ns) {
  Health ready = Health::ready;
  health_.compare_exchange_strong(ready, Health::draining);
  drain_deadline_ns_ = deadline_ns;
  while (in_flight_.load() > 0 && health_.load() != Health::dead && !stopping_)
    std::this_thread::sleep_for(milliseconds(5));
}

}  // namespace godwit::engine
