#include "schedule/scheduler.h"

#include <algorithm>
#include <cmath>

#include "base/fault.h"

namespace godwit::schedule {
namespace {

constexpr int64_t kGrowth = 4096;    // positions reserved beyond what is there (design §8)
constexpr size_t kBiasPairs = 1024;  // logit_bias pairs of one request, at most (api spec)

int64_t reservation(const Sequence& s) {
  const int64_t left = s.prompt_tokens + s.max_tokens - s.size();
  return s.size() + std::min(left, kGrowth);
}

cache::Prompt prompt_of(const Sequence& s) {
  return {{s.tokens.data(), static_cast<size_t>(s.prompt_tokens)}, s.keys};
}

// What the cache may reuse: every row of a scored prompt has to be computed.
cache::Prompt reusable(const Sequence& s) {
  return s.scored ? cache::Prompt() : prompt_of(s);
}

int64_t rank_of(const Sequence& s) {
  const int64_t level = std::clamp(s.priority, -kOutermostPriority, kOutermostPriority);
  return s.submitted_ns + level * kPriorityHeadStartNs;
}

void insert_in_order(std::vector<std::unique_ptr<Sequence>>& line, std::unique_ptr<Sequence> s) {
  const auto before = [](const auto& a, const auto& b) {
    return a->rank != b->rank ? a->rank < b->rank : a->number < b->number;
  };
  line.insert(std::upper_bound(line.begin(), line.end(), s, before), std::move(s));
}

}  // namespace

Scheduler::Scheduler(const ScheduleLimits& limits, cache::Cache& cache, std::vector<int32_t> stop_ids,
                     const Clock& clock, Listener& listener)
    : limits_(limits),
      cache_(cache),
      stop_ids_(std::move(stop_ids)),
      clock_(clock),
      listener_(listener),
      cost_(limits.itl_target_ns, limits.prefill_tokens),
      by_slot_(static_cast<size_t>(cache.slots_capacity()) + 1, nullptr) {
  running_.reserve(static_cast<size_t>(limits_.max_sequences));
  waiting_.reserve(static_cast<size_t>(limits_.max_waiting + limits_.max_sequences));
}

void Scheduler::prepare(StepPlan& plan) const {
  const size_t sequences = static_cast<size_t>(limits_.max_sequences);
  plan.table_stride = static_cast<int32_t>(cache::pages_for(limits_.context));
  plan.pages.assign(by_slot_.size() * static_cast<size_t>(plan.table_stride), 0);
  plan.sequences.reserve(sequences);
  plan.ids.reserve(sequences + static_cast<size_t>(limits_.forced_rows + limits_.prefill_tokens));
  plan.samples.reserve(sequences + static_cast<size_t>(limits_.prefill_tokens));
  plan.bias_ids.reserve(sequences * kBiasPairs);
  plan.bias_values.reserve(sequences * kBiasPairs);
  plan.moves.reserve(cache::CopyQueue::kMostMoves);
  plan.restores.reserve(sequences);
  plan.saves.reserve(sequences);
}

bool Scheduler::add(std::unique_ptr<Sequence> s) {
  GODWIT_ASSERT(cache::pages_for(s->prompt_tokens + s->max_tokens) <= cache_.pages_capacity());
  GODWIT_ASSERT(static_cast<int64_t>(s->keys.size()) == s->prompt_tokens / cache::kPageTokens);
  if (waiting() >= limits_.max_waiting) return false;
  s->rank = rank_of(*s);
  insert_in_order(waiting_, std::move(s));
  return true;
}

// Ends what nobody waits for any more, before it gets another row.
void Scheduler::sweep() {
  const int64_t now = clock_.now_ns();
  const auto overdue = [&](const Sequence& s) { return s.deadline_ns != 0 && now > s.deadline_ns; };
  for (size_t i = running_.size(); i-- > 0;) {
    if (running_[i]->cancelled) {
      end(*running_[i], FinishReason::cancelled, -1, Failure::none);
    } else if (overdue(*running_[i])) {
      end(*running_[i], FinishReason::error, -1, Failure::deadline);
    }
  }
  for (size_t n = window(); n-- > 0;) {
    if (looked_at_ >= waiting_.size()) looked_at_ = 0;
    const bool cancelled = waiting_[looked_at_]->cancelled;
    if (!cancelled && !overdue(*waiting_[looked_at_])) {
      ++looked_at_;
      continue;
    }
    std::unique_ptr<Sequence> s = std::move(waiting_[looked_at_]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(looked_at_));
    cache_.release(s->lease);  // what it may have on the host
    if (cancelled) {
      listener_.on_end(std::move(s), FinishReason::cancelled, -1, Failure::none);
    } else {
      listener_.on_end(std::move(s), FinishReason::error, -1, Failure::deadline);
    }
  }
}

// Pages that one more growth step of everything running would take.
int64_t Scheduler::headroom() const {
  int64_t pages = 0;
  for (const auto& s : running_) {
    const int64_t lacking =
        cache::pages_for(s->prompt_tokens + s->max_tokens) - cache::pages_for(s->lease.tokens());
    pages += std::clamp<int64_t>(lacking, 0, cache::pages_for(kGrowth));
  }
  return pages;
}

// In order; the first that does not fit waits, and nobody overtakes it.
void Scheduler::admit() {
  while (!waiting_.empty() && running() < limits_.max_sequences) {
    Sequence& s = *waiting_.front();
    const int64_t free = cache_.pages_capacity() - cache_.pages_used();
    // What had to go comes back only when everything that runs can grow once more without it: until then it
    // would be sent away again before it had caught up, and again.
    if (s.preemptions > 0 && free < cache::pages_for(reservation(s)) + headroom()) return;
    if (s.number == refused_) {  // nothing was freed since it was looked up, nor has left since?
      const bool left = refused_leaving_ > 0 && cache_.has_left(refused_leaving_);
      if (!left && (refused_leaving_ > 0 || free <= refused_pages_)) return;
    }
    const bool returns = s.lease.swapped();
    if (!(returns ? cache_.swap_in(s.lease, reservation(s))
                  : cache_.acquire(reusable(s), reservation(s), s.lease))) {
      refused_ = s.number;
      refused_pages_ = free;
      refused_leaving_ = cache_.leaving() ? cache_.last_leaving() : 0;
      return;
    }
    if (!returns) s.computed = s.lease.cached;
    if (s.scored) s.lease.miss = cache::MissReason::disabled;
    s.ran = false;
    s.history_ready = false;
    s.paused = false;  // unless on_admit knows better
    if (s.started_ns == 0) s.started_ns = clock_.now_ns();
    by_slot_[static_cast<size_t>(s.lease.slot)] = &s;
    insert_in_order(running_, std::move(waiting_.front()));
    waiting_.erase(waiting_.begin());
    listener_.on_admit(s);
  }
}

// Sends a sequence back to the waiting line: its state goes to the host tier if there is room, else it is
// recomputed when it fits again.
void Scheduler::preempt(size_t index, Keep keep) {
  std::unique_ptr<Sequence> s = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  by_slot_[static_cast<size_t>(s->lease.slot)] = nullptr;
  const bool on_host = s->lease.loading() && s->lease.host_slot != cache::kNone;
  if (keep == Keep::what_is_good && on_host) {
    cache_.retreat(s->lease);
  } else if (keep == Keep::nothing || !s->ran || !cache_.swap_out(s->lease)) {
    cache_.release(s->lease);
    s->computed = 0;
  }
  ++s->preemptions;
  ++preemptions_;
  insert_in_order(waiting_, std::move(s));
}

// Pages for `tokens` positions of running_[index], taken from the last in the order if need be. Where pages
// are on their way to the host already, it waits for those instead.
void Scheduler::reserve(size_t index, int64_t tokens) {
  Sequence& s = *running_[index];
  if (tokens <= s.lease.tokens()) return;
  while (!cache_.grow(s.lease, reservation(s)) && !cache_.grow(s.lease, tokens)) {
    if (cache_.leaving()) return;
    const bool self = running_.size() == index + 1;
    preempt(running_.size() - 1);
    if (self) return;
  }
}

void Scheduler::grow() {
  for (size_t i = 0; i < running_.size(); ++i)
    if (!running_[i]->paused && !running_[i]->lease.loading() && running_[i]->decoding())
      reserve(i, running_[i]->size());
}

// Whether the planned step may have rows of it.
bool Scheduler::runs(const Sequence& s) const {
  if (s.paused || (s.lease.loading() && !cache_.arrived(s.lease))) return false;
  return !s.decoding() || s.size() <= s.lease.tokens();
}

void Scheduler::plan(StepPlan& plan) {
  GODWIT_ASSERT(plan.table_stride > 0);
  plan.clear();
  planned_ns_ = clock_.now_ns();
  sweep();
  cache_.begin_copies(cost_.copy_bytes(running()));
  // Who runs grows before anybody comes: its room is not given away first. Both may send sequences to the
  // host, so rows are planned after them.
  grow();
  admit();
  if (!running_.empty() && GODWIT_FAULT("schedule.preempt")) preempt(running_.size() - 1);
  cache_.plan_copies();
  plan_decode(plan);
  plan.decode_sequences = static_cast<int32_t>(plan.sequences.size());
  plan_prefill(plan);
  cache_.take_moves(plan.moves);
  ++plan.step;
}

void Scheduler::plan_decode(StepPlan& plan) {
  int64_t forced = limits_.forced_rows;
  for (auto& s : running_) {
    if (!runs(*s) || !s->decoding()) continue;
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
  if (s.scored) budget = std::min(budget, s.room);  // each row is something to read
  int64_t end = std::min(s.prompt_tokens, s.computed + budget);
  for (const int64_t edge : {s.lease.branch, cache::Cache::last_boundary(s.prompt_tokens)})
    if (edge > s.computed) end = std::min(end, edge);
  return end == s.prompt_tokens ? end : end / kernels::kPageTokens * kernels::kPageTokens;
}

// Half of the prompt rows go to the prompt that has the fewest left, the rest to the first in the order:
// short prompts do not wait for a long one, nor a long one for a stream of short ones. Of an odd number of
// pages the two get the larger half in turns. What they leave goes along the order.
void Scheduler::plan_prefill(StepPlan& plan) {
  Sequence* first = nullptr;
  Sequence* shortest = nullptr;
  const auto left = [](const Sequence& s) { return s.prompt_tokens - s.computed; };
  for (const auto& s : running_) {
    if (!runs(*s) || s->decoding()) continue;
    if (first == nullptr) first = s.get();
    if (shortest == nullptr || left(*s) < left(*shortest)) shortest = s.get();
  }
  if (first == nullptr) return;
  const int64_t copied = cache_.planned_copy_bytes();
  int64_t budget = prefill_budget_ = cost_.prompt_rows(plan.rows(), copied);
  if (budget == 0) return;
  scored_weight_ = static_cast<double>(budget) / static_cast<double>(cost_.scored_rows(plan.rows(), copied));
  if (shortest != first) {
    const int64_t turn = plan.step % 2 == 0 ? 0 : cache::kPageTokens - 1;
    budget -= add_slice(plan, *shortest, (budget / 2 + turn) / cache::kPageTokens * cache::kPageTokens);
  }
  budget -= add_slice(plan, *first, budget);
  for (const auto& s : running_)
    if (s.get() != first && s.get() != shortest && runs(*s) && !s->decoding())
      budget -= add_slice(plan, *s, budget);
}

// What the planned rows take of the budget: 0 when it does not reach the next grid point. A page of a scored
// prompt may take more than there is, or it would never move.
int64_t Scheduler::add_slice(StepPlan& plan, Sequence& s, int64_t budget) {
  if (budget < cache::kPageTokens) return 0;
  const double weight = s.scored ? std::max(scored_weight_, 1.0) : 1;
  const auto most = static_cast<int64_t>(static_cast<double>(budget) / weight);
  const int64_t end = slice_end(s, std::max(most, cache::kPageTokens));
  const int64_t rows = end - s.computed;
  if (rows <= 0) return 0;
  add_rows(plan, s, kernels::RowKind::prefill, rows);
  if (s.scored) return static_cast<int64_t>(std::ceil(static_cast<double>(rows) * weight));
  if (end % kernels::kPageTokens != 0) return rows;
  const bool edge =
      end == s.lease.branch || end == s.prompt_tokens || end == cache::Cache::last_boundary(s.prompt_tokens);
  if (!edge && end - s.lease.last_snapshot < limits_.snapshot_stride) return rows;
  const int32_t snapshot = cache_.reserve_snapshot(s.lease, end);
  if (snapshot >= 0) plan.saves.push_back({s.lease.slot, snapshot, end});
  return rows;
}

void Scheduler::add_rows(StepPlan& plan, Sequence& s, kernels::RowKind kind, int64_t rows) {
  PlanSequence p;
  p.request = s.number;
  p.rows.first = s.computed;
  p.rows.row = plan.rows();
  p.rows.rows = static_cast<int32_t>(rows);
  p.rows.slot = s.lease.slot;
  p.rows.page_offset = s.lease.slot * plan.table_stride;
  p.rows.kind = kind;
  p.pages = static_cast<int32_t>(cache::pages_for(s.computed + rows));
  const int64_t end = s.computed + rows;
  if (s.scored && kind == kernels::RowKind::prefill) {
    // What was reported before a preemption is not reported again.
    p.sampled_rows = static_cast<int32_t>(end - std::clamp(s.scored_end, s.computed, end));
  } else {
    p.sampled_rows = end == s.size() ? 1 : 0;
  }
  if (s.lease.restore >= 0) {
    plan.restores.push_back({s.lease.slot, s.lease.restore, s.lease.cached});
    cache_.restored(s.lease);
  }
  plan.ids.insert(plan.ids.end(), s.tokens.begin() + s.computed, s.tokens.begin() + s.computed + rows);
  const auto table = plan.pages.begin() + p.rows.page_offset;
  std::copy(s.lease.pages.begin() + s.lease.in_table, s.lease.pages.end(), table + s.lease.in_table);
  // A mutant of the gate cached = cold (design §2): a hit that misses a page. Two pages exchanged would not
  // do: attention knows no positions, so they give the same sums in another order.
  if (s.lease.in_table == 0 && s.lease.shared > 1 && GODWIT_FAULT("mutant.page")) table[0] = table[1];
  s.lease.in_table = static_cast<int32_t>(s.lease.pages.size());
  if (p.sampled_rows > 0) add_samples(plan, s, end - p.sampled_rows, end);
  plan.sequences.push_back(p);
}

// The rows at [first, end) of the sequence get logits: those before the last one that it has are scored, that
// one is drawn from.
void Scheduler::add_samples(StepPlan& plan, Sequence& s, int64_t first, int64_t end) {
  for (int64_t at = first; at < end; ++at) {
    sample::SamplingRow row = s.sampling;
    row.slot = s.lease.slot;
    row.position = at + 1;
    if (row.position < s.size()) {
      row.scored = s.tokens[static_cast<size_t>(row.position)];
      row.history = 0;
      plan.samples.push_back(row);
      continue;
    }
    row.stop_suppressed = s.completion_tokens() < s.min_tokens ? 1 : 0;
    row.bias_offset = static_cast<int32_t>(plan.bias_ids.size());
    row.bias_count = static_cast<int32_t>(s.bias.size());
    for (const auto& [id, value] : s.bias) {
      plan.bias_ids.push_back(id);
      plan.bias_values.push_back(value);
    }
    if (s.masked) listener_.on_masked_row(s, row);
    plan.samples.push_back(row);
  }
}

bool Scheduler::stops(const Sequence& s, int32_t id) const {
  const auto among = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return (!s.ignore_eos && among(stop_ids_)) || among(s.stop_ids);
}

// What the step copied in is there.
void Scheduler::take_copies(std::span<const int32_t> damaged) {
  const auto is_damaged = [&](const Sequence& s) {
    return std::find(damaged.begin(), damaged.end(), s.lease.slot) != damaged.end();
  };
  for (size_t i = running_.size(); i-- > 0;) {
    Sequence& s = *running_[i];
    if (!s.lease.loading()) continue;
    const bool request = s.lease.host_slot != cache::kNone;
    const bool arrived = cache_.arrived(s.lease);
    // What a damaged tier has still to give is not trusted.
    const bool distrusted = !damaged.empty() && !request && !arrived;
    if (is_damaged(s) || distrusted) {
      preempt(i, Keep::nothing);
    } else if (arrived) {
      cache_.settle(s.lease, prompt_of(s));
      s.ran |= request;  // its slot is as it was when it left
    }
  }
  if (!damaged.empty()) cache_.distrust_host();
}

void Scheduler::apply(const StepPlan& plan, const sample::Sampled* drawn, const Copied& copied) {
  int64_t scored = 0;
  for (const sample::SamplingRow& row : plan.samples) scored += row.scored >= 0;
  cost_.observe({plan.decode_rows(), plan.rows() - plan.decode_rows(), scored},
                clock_.now_ns() - planned_ns_ - copied.ns);
  cost_.observe_copies(cache_.planned_copy_bytes(), copied.ns);
  take_copies(copied.damaged);
  size_t next_draw = 0;
  for (const PlanSequence& p : plan.sequences) {
    if (by_slot_[static_cast<size_t>(p.rows.slot)] == nullptr) {  // computed from a damaged copy, sent away
      next_draw += static_cast<size_t>(p.sampled_rows);
      continue;
    }
    Sequence& s = *by_slot_[static_cast<size_t>(p.rows.slot)];
    GODWIT_ASSERT(s.number == p.request);
    s.computed += p.rows.rows;
    s.ran = true;
    if (p.rows.kind == kernels::RowKind::prefill && !s.scored)
      cache_.commit(s.lease, prompt_of(s), s.computed);
    if (p.sampled_rows == 0) continue;
    next_draw += static_cast<size_t>(p.sampled_rows);
    const sample::Sampled* own = drawn + next_draw - p.sampled_rows;
    const bool draws = s.computed == s.size();
    if (s.scored && !take_scores(s, own, p.sampled_rows - (draws ? 1 : 0))) continue;
    if (!draws) continue;
    const sample::Sampled& d = own[p.sampled_rows - 1];
    if (!d.finite) {
      end(s, FinishReason::error, -1, Failure::not_finite);
      continue;
    }
    if (s.first_token_ns == 0) s.first_token_ns = clock_.now_ns();
    s.tokens.push_back(d.id);
    listener_.on_token(s, d);
    if (stops(s, d.id)) {
      end(s, FinishReason::stop, d.id, Failure::none);
    } else if (s.completion_tokens() >= s.max_tokens || s.size() >= limits_.context) {
      end(s, FinishReason::length, -1, Failure::none);
    }
  }
}

// False when one of them had no finite logits, which ends the sequence.
bool Scheduler::take_scores(Sequence& s, const sample::Sampled* scores, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    if (!scores[i].finite) {
      end(s, FinishReason::error, -1, Failure::not_finite);
      return false;
    }
    listener_.on_score(s, scores[i]);
  }
  s.scored_end = std::max(s.scored_end, s.computed);
  return true;
}

void Scheduler::end(Sequence& ended, FinishReason reason, int32_t stop_id, Failure failure) {
  const auto at =
      std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == &ended; });
  std::unique_ptr<Sequence> s = std::move(*at);
  running_.erase(at);
  by_slot_[static_cast<size_t>(s->lease.slot)] = nullptr;
  cache_.release(s->lease);
  listener_.on_end(std::move(s), reason, stop_id, failure);
}

void Scheduler::fail_all(Failure failure) {
  while (!running_.empty()) end(*running_.back(), FinishReason::error, -1, failure);
  while (!waiting_.empty()) {
    std::unique_ptr<Sequence> s = std::move(waiting_.back());
    waiting_.pop_back();
    cache_.release(s->lease);
    listener_.on_end(std::move(s), FinishReason::error, -1, failure);
  }
}

}  // namespace godwit::schedule
