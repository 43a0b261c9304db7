// ShadowModel: stands in for the ranks under the real schedule and cache. It keeps what a model would keep
// (tokens in pages, a running state in slots) as hashes, refuses any step a real model could not run, and
// draws the next token from what it FOUND in pages and slot. A page freed too early, a state not restored, a
// row run twice: each gives another token than the request alone would. A page is kept as the hash of the ids
// written to it, so that reading a context costs one step for each 64 tokens and a million requests are
// feasible.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cache/cache.h"
#include "schedule/step_plan.h"

namespace godwit::simulator {

constexpr int32_t kVocabulary = 1000;

class ShadowModel {
 public:
  ShadowModel(int32_t pages, int32_t slots, int32_t snapshots, cache::HostSizes host = {})
      : pages_(static_cast<size_t>(pages)),
        host_pages_(static_cast<size_t>(host.pages)),
        slots_(static_cast<size_t>(slots)),
        snapshots_(static_cast<size_t>(snapshots)),
        host_snapshots_(static_cast<size_t>(host.snapshots)),
        host_slots_(static_cast<size_t>(host.slots)) {}

  void run(const schedule::StepPlan& plan, std::vector<sample::Sampled>& drawn) {
    for (const cache::Move& m : plan.moves)
      if (m.way == cache::Move::Way::out) move(m);
    damaged.clear();
    for (const cache::Move& m : plan.moves) {
      if (m.way != cache::Move::Way::in) continue;
      move(m);
      if (damage_every > 0 && moved_in % damage_every == 0) {
        damage(m);
        damaged.push_back(m.slot);
      }
    }
    for (const auto& c : plan.restores) {
      slots_[static_cast<size_t>(c.slot)] = snapshots_.at(static_cast<size_t>(c.snapshot));
      require(slots_[static_cast<size_t>(c.slot)].tokens == c.position,
              "a restored state covers other tokens");
    }
    drawn.clear();
    int32_t row = 0;
    bool prefill_seen = false;
    std::vector<bool> slot_used(slots_.size(), false);
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      const schedule::PlanSequence& p = plan.sequences[i];
      const bool decode = kernels::is_decode_family(p.rows.kind);
      require(decode == (static_cast<int32_t>(i) < plan.decode_sequences), "families out of order");
      prefill_seen |= !decode;
      require(!(decode && prefill_seen), "a decode row after a prefill row");
      require(p.rows.row == row && p.rows.rows >= 1, "rows are not consecutive");
      require(p.rows.slot >= 1 && p.rows.slot < static_cast<int32_t>(slots_.size()), "slot out of range");
      require(!slot_used[static_cast<size_t>(p.rows.slot)], "a slot twice in a step");
      slot_used[static_cast<size_t>(p.rows.slot)] = true;
      if (!decode) require(p.rows.first % cache::kPageTokens == 0, "a prefill slice starts off the grid");
      run_rows(plan, p, drawn);
      row += p.rows.rows;
    }
    require(row == plan.rows(), "rows that belong to nobody");
    require(drawn.size() == plan.samples.size(), "draws and samples differ");
    for (const auto& c : plan.saves) {
      const State& s = slots_[static_cast<size_t>(c.slot)];
      require(s.tokens == c.position && c.position % cache::kPageTokens == 0,
              "a snapshot of another position");
      snapshots_.at(static_cast<size_t>(c.snapshot)) = s;
    }
  }

  // What a request that runs alone draws, fed token by token.
  class Alone {
   public:
    void feed(int32_t id) {
      state_ = advance(state_, id);
      page_ = advance(page_, id);
      if (++tokens_ % cache::kPageTokens != 0) return;
      whole_pages_ = mix64(whole_pages_ ^ page_);
      page_ = 0;
    }
    int32_t next(uint64_t seed) const {
      const uint64_t found = tokens_ % cache::kPageTokens == 0 ? whole_pages_ : mix64(whole_pages_ ^ page_);
      return draw(state_, found, seed, tokens_);
    }

   private:
    uint64_t state_ = 0, page_ = 0, whole_pages_ = 0;
    int64_t tokens_ = 0;
  };

 private:
  struct State {
    int64_t tokens = 0;
    uint64_t hash = 0;
  };
  struct Page {
    uint64_t hash = 0;  // of the ids in it, in order
    int32_t filled = 0;
  };

  static void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  }
  static uint64_t advance(uint64_t hash, int32_t id) { return mix64(hash ^ static_cast<uint32_t>(id)) + 1; }
  static int32_t draw(uint64_t state, uint64_t pages, uint64_t seed, int64_t position) {
    return static_cast<int32_t>(mix64(state ^ mix64(pages ^ mix64(seed + static_cast<uint64_t>(position)))) %
                                kVocabulary);
  }

  void move(const cache::Move& m) {
    const bool out = m.way == cache::Move::Way::out;
    ++(out ? moved_out : moved_in);
    if (m.what == cache::Move::What::page) {
      std::vector<Page>& from = out ? pages_ : host_pages_;
      (out ? host_pages_ : pages_).at(static_cast<size_t>(m.to)) = from.at(static_cast<size_t>(m.from));
    } else if (m.what == cache::Move::What::slot) {
      ++swaps;
      (out ? host_slots_ : slots_).at(static_cast<size_t>(m.to)) =
          (out ? slots_ : host_slots_).at(static_cast<size_t>(m.from));
    } else if (out) {
      host_snapshots_.at(static_cast<size_t>(m.to)) = snapshots_.at(static_cast<size_t>(m.from));
    } else {
      snapshots_.at(static_cast<size_t>(m.to)) = host_snapshots_.at(static_cast<size_t>(m.from));
    }
  }
  void damage(const cache::Move& m) {
    const auto to = static_cast<size_t>(m.to);
    (m.what == cache::Move::What::page       ? pages_.at(to).hash
     : m.what == cache::Move::What::snapshot ? snapshots_.at(to).hash
                                             : slots_.at(to).hash) ^= 1;
  }

  static void score(const schedule::StepPlan& plan, std::vector<sample::Sampled>& drawn) {
    const int32_t id = plan.samples[drawn.size()].scored;
    require(id >= 0, "a row before the last is drawn from");
    drawn.emplace_back().id = id;
  }

  void run_rows(const schedule::StepPlan& plan, const schedule::PlanSequence& p,
                std::vector<sample::Sampled>& drawn) {
    State& s = slots_[static_cast<size_t>(p.rows.slot)];
    if (p.rows.first == 0) s = State{};
    require(s.tokens == p.rows.first, "the slot's state covers other tokens than the rows continue");
    require(p.pages == cache::pages_for(p.rows.first + p.rows.rows), "the page table has another length");
    require(p.rows.page_offset + p.pages <= static_cast<int32_t>(plan.pages.size()),
            "a page table past the end");
    const int32_t* table = plan.pages.data() + p.rows.page_offset;
    for (int32_t r = 0; r < p.rows.rows; ++r) {
      const int64_t position = p.rows.first + r;
      const int32_t id = plan.ids[static_cast<size_t>(p.rows.row + r)];
      const int32_t page = table[position / cache::kPageTokens];
      require(page >= 1 && static_cast<size_t>(page) < pages_.size(), "page out of range");
      Page& to = pages_[static_cast<size_t>(page)];
      if (position % cache::kPageTokens == 0) to = Page{};
      require(to.filled == position % cache::kPageTokens, "a page is not filled in order");
      to.hash = advance(to.hash, id);
      ++to.filled;
      s.hash = advance(s.hash, id);
      ++s.tokens;
    }
    if (p.sampled_rows == 0) return;
    uint64_t found = 0;  // attention reads what the pages hold, all of it
    for (int32_t i = 0; i < p.pages; ++i) found = mix64(found ^ pages_[static_cast<size_t>(table[i])].hash);
    for (int32_t i = 1; i < p.sampled_rows; ++i) score(plan, drawn);
    const sample::SamplingRow& row = plan.samples[drawn.size()];
    if (row.scored >= 0) return score(plan, drawn);  // of a slice that does not end its prompt
    require(row.slot == p.rows.slot && row.position == s.tokens, "a draw at another position");
    sample::Sampled out;
    out.id = draw(s.hash, found, row.seed, row.position);
    drawn.push_back(out);
  }

  std::vector<Page> pages_, host_pages_;
  std::vector<State> slots_;
  std::vector<State> snapshots_, host_snapshots_, host_slots_;

 public:
  int64_t moved_out = 0, moved_in = 0, swaps = 0;
  int64_t damage_every = 0;      // every n-th copy from the host is damaged; 0 = none
  std::vector<int32_t> damaged;  // slots, of the last step
};

}  // namespace godwit::simulator
