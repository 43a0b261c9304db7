#include "schedule/scheduler.h"

#include <algorithm>

namespace godwit::schedule {
namespace {

constexpr int64_t kGrowth = 4096;  // positions reserved beyond what is there (design §8)

int64_t reservation(const Sequence& s) {
  const int64_t left = s.prompt_tokens + s.max_tokens - s.size();
  return s.size() + std::min(left, kGrowth);
}

}  // namespace

Scheduler::Scheduler(const ScheduleLimits& limits, cache::Cache& cache, std::vector<int32_t> stop_ids,
                     const Clock& clock, Listener& listener)
    : limits_(limits), cache_(cache), stop_ids_(std::move(stop_ids)), clock_(clock), listener_(listener) {
  running_.reserve(static_cast<size_t>(limits_.max_sequences));
  waiting_.reserve(static_cast<size_t>(limits_.max_waiting + limits_.max_sequences));
}

bool Scheduler::add(std::unique_ptr<Sequence> s) {
  if (waiting() >= limits_.max_waiting) return false;
  const auto later = [](int32_t priority, const auto& other) { return priority < other->priority; };
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), s->priority, later), std::move(s));
  return true;
}

// Ends what nobody waits for any more, before it gets another row.
void Scheduler::sweep() {
  const int64_t now = clock_.now_ns();
  const auto overdue = [&](const Sequence& s) { return s.deadline_ns != 0 && now > s.deadline_ns; };
  const auto late = [] {
    return Error{ErrorCode::request_timeout, "the request's deadline passed before it was finished", {}};
  };
  for (size_t i = running_.size(); i-- > 0;) {
    if (running_[i]->cancelled) {
      end(i, FinishReason::cancelled, -1, std::nullopt);
    } else if (overdue(*running_[i])) {
      end(i, FinishReason::error, -1, late());
    }
  }
  for (size_t i = waiting_.size(); i-- > 0;) {
    const bool cancelled = waiting_[i]->cancelled;
    if (!cancelled && !overdue(*waiting_[i])) continue;
    std::unique_ptr<Sequence> s = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (cancelled) {
      listener_.on_end(std::move(s), FinishReason::cancelled, -1, std::nullopt);
    } else {
      listener_.on_end(std::move(s), FinishReason::error, -1, late());
    }
  }
}

// In order; the first that does not fit waits, and nobody overtakes it.
void Scheduler::admit() {
  while (!waiting_.empty() && running() < limits_.max_sequences) {
    Sequence& s = *waiting_.front();
    if (!cache_.acquire({s.tokens.data(), static_cast<size_t>(s.prompt_tokens)}, reservation(s), s.lease))
      return;
    s.computed = s.lease.cached;
    s.history_ready = false;
    if (s.started_ns == 0) s.started_ns = clock_.now_ns();
    running_.push_back(std::move(waiting_.front()));
    waiting_.erase(waiting_.begin());
    listener_.on_admit(*running_.back());
  }
}

// Gives the sequence back to the head of the waiting line; it is recomputed when it fits again.
void Scheduler::preempt(size_t index) {
  cache_.release(running_[index]->lease);
  running_[index]->computed = 0;
  waiting_.insert(waiting_.begin(), std::move(running_[index]));
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
}

// Pages for `tokens` positions of running_[index], taken from the youngest of the lowest priority if need be.
// False when the sequence itself had to go.
bool Scheduler::reserve(size_t index, int64_t tokens) {
  if (tokens <= running_[index]->lease.tokens()) return true;
  const uint64_t number = running_[index]->number;
  while (!cache_.grow(running_[index]->lease, reservation(*running_[index]))) {
    if (cache_.grow(running_[index]->lease, tokens)) return true;
    size_t victim = 0;
    for (size_t i = 1; i < running_.size(); ++i)
      if (running_[i]->priority >= running_[victim]->priority) victim = i;
    const bool self = running_[victim]->number == number;
    preempt(victim);
    if (self) return false;
    if (victim < index) --index;
  }
  return true;
}

void Scheduler::plan(StepPlan& plan) {
  plan.clear();
  sweep();
  admit();
  // Growth first: it may send sequences away, and a planned row must not lose its pages.
  for (size_t i = 0; i < running_.size();) {
    const uint64_t number = running_[i]->number;
    if (running_[i]->decoding()) reserve(i, running_[i]->size());
    if (i < running_.size() && running_[i]->number == number) {
      ++i;
    } else if (i > 0) {
      --i;  // something before or at i left; a look twice at one is harmless
    }
  }
  plan_decode(plan);
  plan.decode_sequences = static_cast<int32_t>(plan.sequences.size());
  plan_prefill(plan);
  cache_.take_moves(plan.moves);
  ++plan.step;
}

void Scheduler::plan_decode(StepPlan& plan) {
  int64_t forced = limits_.forced_rows;
  for (auto& s : running_) {
    if (s->paused || !s->decoding()) continue;
    const int64_t left = s->size() - s->computed;
    if (left == 1) {
      add_rows(plan, *s, kernels::RowKind::decode, 1);
    } else if (forced > 0) {
      const int64_t rows = std::min(left, forced);
      forced -= rows;
      add_rows(plan, *s, kernels::RowKind::forced, rows);
    }
  }
}

// Where the next slice of a prompt ends: within the budget, on the grid unless it ends the prompt, and not
// past a boundary that gets a snapshot (design §9: the last boundary before the prompt's end, and a branch
// point).
int64_t Scheduler::slice_end(const Sequence& s, int64_t budget) const {
  int64_t end = std::min(s.prompt_tokens, s.computed + budget);
  for (const int64_t edge : {s.lease.branch, cache::Cache::last_boundary(s.prompt_tokens)})
    if (edge > s.computed) end = std::min(end, edge);
  return end == s.prompt_tokens ? end : end / kernels::kPageTokens * kernels::kPageTokens;
}

void Scheduler::plan_prefill(StepPlan& plan) {
  int64_t budget = limits_.prefill_tokens;
  for (auto& s : running_) {
    if (budget <= 0) return;
    if (s->paused || s->decoding()) continue;
    const int64_t end = slice_end(*s, budget);
    if (end == s->computed) return;
    budget -= end - s->computed;
    add_rows(plan, *s, kernels::RowKind::prefill, end - s->computed);
    if (end % kernels::kPageTokens != 0) continue;
    const bool edge = end == s->lease.branch || end == s->prompt_tokens ||
                      end == cache::Cache::last_boundary(s->prompt_tokens);
    if (!edge && end - s->lease.last_snapshot < limits_.snapshot_stride) continue;
    const int32_t snapshot = cache_.reserve_snapshot(s->lease, end);
    if (snapshot >= 0) plan.saves.push_back({s->lease.slot, snapshot, end});
  }
}

void Scheduler::add_rows(StepPlan& plan, Sequence& s, kernels::RowKind kind, int64_t rows) {
  PlanSequence p;
  p.request = s.number;
  p.rows.first = s.computed;
  p.rows.row = plan.rows();
  p.rows.rows = static_cast<int32_t>(rows);
  p.rows.slot = s.lease.slot;
  p.rows.page_offset = static_cast<int32_t>(plan.pages.size());
  p.rows.kind = kind;
  p.pages = static_cast<int32_t>(cache::pages_for(s.computed + rows));
  p.sampled_rows = s.computed + rows == s.size() ? 1 : 0;
  if (s.lease.restore >= 0) {
    plan.restores.push_back({s.lease.slot, s.lease.restore, s.lease.cached});
    cache_.restored(s.lease);
  }
  plan.ids.insert(plan.ids.end(), s.tokens.begin() + s.computed, s.tokens.begin() + s.computed + rows);
  plan.pages.insert(plan.pages.end(), s.lease.pages.begin(), s.lease.pages.begin() + p.pages);
  if (p.sampled_rows == 1) {
    sample::SamplingRow row = s.sampling;
    row.slot = s.lease.slot;
    row.position = s.size();
    row.stop_suppressed = s.completion_tokens() < s.min_tokens ? 1 : 0;
    row.bias_offset = static_cast<int32_t>(plan.bias_ids.size());
    row.bias_count = static_cast<int32_t>(s.bias.size());
    for (const auto& [id, value] : s.bias) {
      plan.bias_ids.push_back(id);
      plan.bias_values.push_back(value);
    }
    plan.samples.push_back(row);
  }
  plan.sequences.push_back(p);
}

bool Scheduler::stops(const Sequence& s, int32_t id) const {
  const auto among = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return (!s.ignore_eos && among(stop_ids_)) || among(s.stop_ids);
}

// Index in running_ of a request, looked for from `from` on and around: plans list each family in the order
// of running_.
size_t Scheduler::find(uint64_t number, size_t from) const {
  for (size_t i = 0; i < running_.size(); ++i) {
    const size_t at = (from + i) % running_.size();
    if (running_[at]->number == number) return at;
  }
  return running_.size();
}

void Scheduler::apply(const StepPlan& plan, const sample::Sampled* drawn, std::span<const int32_t> damaged) {
  cache_.step_done();
  if (!damaged.empty()) cache_.distrust_host();
  for (size_t i = running_.size(); i-- > 0;)
    if (std::find(damaged.begin(), damaged.end(), running_[i]->lease.slot) != damaged.end()) preempt(i);
  size_t next_draw = 0;
  size_t at = 0;
  for (const PlanSequence& p : plan.sequences) {
    at = find(p.request, at);
    if (at == running_.size()) {  // computed from a damaged copy, and sent away above
      next_draw += static_cast<size_t>(p.sampled_rows);
      at = 0;
      continue;
    }
    Sequence& s = *running_[at];
    s.computed += p.rows.rows;
    if (p.rows.kind == kernels::RowKind::prefill)
      cache_.commit(s.lease, {s.tokens.data(), static_cast<size_t>(s.prompt_tokens)}, s.computed);
    if (p.sampled_rows == 0) continue;
    const sample::Sampled& d = drawn[next_draw++];
    if (!d.finite) {
      end(at, FinishReason::error, -1,
          Error{ErrorCode::internal,
                "the model gave no finite logits for this request; other requests are not affected",
                {}});
      continue;
    }
    if (s.first_token_ns == 0) s.first_token_ns = clock_.now_ns();
    s.tokens.push_back(d.id);
    listener_.on_token(s, d);
    if (stops(s, d.id)) {
      end(at, FinishReason::stop, d.id, std::nullopt);
    } else if (s.completion_tokens() >= s.max_tokens || s.size() >= limits_.context) {
      end(at, FinishReason::length, -1, std::nullopt);
    }
  }
}

void Scheduler::end(size_t index, FinishReason reason, int32_t stop_id, std::optional<Error> error) {
  std::unique_ptr<Sequence> s = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  cache_.release(s->lease);
  listener_.on_end(std::move(s), reason, stop_id, std::move(error));
}

void Scheduler::fail_all(const Error& error) {
  while (!running_.empty()) end(running_.size() - 1, FinishReason::error, -1, error);
  while (!waiting_.empty()) {
    std::unique_ptr<Sequence> s = std::move(waiting_.back());
    waiting_.pop_back();
    listener_.on_end(std::move(s), FinishReason::error, -1, error);
  }
}

}  // namespace godwit::schedule
