#include "grammar/matcher.h"

#include <algorithm>

#include "base/assert.h"

namespace godwit::grammar {

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, bool reasoning) : grammar_(std::move(grammar)) {
  const std::lock_guard lock(grammar_->mutex_);
  memory_ = grammar_->memory_;
  places_.fill(reasoning ? kReasoning : memory_->states.start());
}

// Called with the lock held, before anything that makes states.
void Matcher::move_to_current_memory() {
  if (grammar_->memory_->full())
    grammar_->memory_ = std::make_shared<Grammar::Memory>(grammar_->graph_, memory_->words);
  if (memory_ == grammar_->memory_) return;
  std::unordered_map<StateId, StateId> done;
  for (StateId& state : places_) {
    if (state < kFinished) state = grammar_->memory_->states.import(memory_->states, state, done);
  }
  memory_ = grammar_->memory_;
}

void Matcher::fill_mask(std::span<uint32_t> mask) {
  const TokenIndex& index = grammar_->index();
  GODWIT_ASSERT(mask.size() == index.mask_words());
  if (reasoning()) {
    std::copy(index.free_mask().begin(), index.free_mask().end(), mask.begin());
  } else if (finished()) {
    std::fill(mask.begin(), mask.end(), 0);
  } else {
    const std::lock_guard lock(grammar_->mutex_);
    move_to_current_memory();
    const auto allowed = grammar_->mask(*memory_, here());
    std::copy(allowed.begin(), allowed.end(), mask.begin());
  }
}

// The state after `id`, kDead when it is not allowed.
StateId Matcher::after(int32_t id) {
  const TokenIndex& index = grammar_->index();
  States& states = memory_->states;
  if (id < 0 || id >= index.vocab_size() || finished()) return States::kDead;
  if (reasoning()) {
    const auto& control = index.control();
    if (id == control.think_close) return states.start();
    if (id == control.tool_call_open && grammar_->starts_with_call())
      return states.after_token(states.start(), id);
    const bool free = (index.free_mask()[static_cast<uint32_t>(id) / 32] >> (id % 32) & 1) != 0;
    return free ? kReasoning : States::kDead;
  }
  StateId state = here();
  if (index.is_end(id)) return states.complete(state) ? kFinished : States::kDead;
  const std::string_view text = index.text_of(id);
  if (text.empty()) return states.after_token(state, id);
  for (char c : text) {
    state = states.next(state, static_cast<uint8_t>(c));
    if (state == States::kDead) break;
  }
  return state;
}

bool Matcher::accept(int32_t id) {
  const std::lock_guard lock(grammar_->mutex_);
  move_to_current_memory();
  const StateId state = after(id);
  if (state == States::kDead) return false;
  ++accepted_;
  places_[accepted_ % places_.size()] = state;
  return true;
}

void Matcher::rollback(size_t count) {
  GODWIT_ASSERT(count <= kMaxRollback && count <= accepted_);
  accepted_ -= count;
}

bool Matcher::is_complete() {
  if (reasoning() || finished()) return false;
  const std::lock_guard lock(grammar_->mutex_);
  return memory_->states.complete(here());
}

}  // namespace godwit::grammar
