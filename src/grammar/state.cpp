#include "grammar/state.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/assert.h"
#include "base/hash.h"

namespace godwit::grammar {
namespace {

bool same_top(const Item& a, const Item& b) {
  return a.node == b.node && a.arg == b.arg;
}
bool top_less(const Item& a, const Item& b) {
  return std::tie(a.node, a.arg) < std::tie(b.node, b.arg);
}
bool same(const Item& a, const Item& b) {
  return same_top(a, b) && a.below == b.below;
}

uint64_t hash_of(std::span<const Item> items, bool end) {
  uint64_t hash = end ? 1 : 2;
  for (const Item& item : items) {
    hash = mix64(hash ^ item.arg) + (uint64_t{item.node} << 32 | item.below) * 0x9e3779b97f4a7c15ull;
  }
  return mix64(hash);
}

}  // namespace

// The items that one call of settle has already expanded.
class States::Seen {
 public:
  bool add(const Item& item) {
    if (few_.size() < 48) {
      for (const Item& other : few_) {
        if (same(item, other)) return false;
      }
      few_.push_back(item);
      return true;
    }
    if (many_.empty()) {
      for (const Item& other : few_) many_.insert({other.node, other.arg, other.below});
    }
    return many_.insert({item.node, item.arg, item.below}).second;
  }

 private:
  std::vector<Item> few_;
  std::set<std::tuple<uint32_t, uint64_t, StateId>> many_;
};

States::States(const Graph& graph) : graph_(graph), slots_(1024, kNone) {
  intern({}, true);
  intern({}, false);
}

StateId States::intern(std::span<const Item> items, bool end) {
  if ((states_.size() + 1) * 2 > slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(items, end) & mask;
  for (; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const State& state = states_[slots_[slot]];
    if (state.end == end && state.count == items.size() &&
        std::equal(items.begin(), items.end(), items_.begin() + state.first, same))
      return slots_[slot];
  }
  State state;
  state.first = static_cast<uint32_t>(items_.size());
  state.count = static_cast<uint32_t>(items.size());
  state.end = end;
  for (const Item& item : items) {
    const NodeKind kind = graph_.at(item.node).kind;
    const uint32_t open = kind == NodeKind::members || kind == NodeKind::items ? 1 : 0;
    state.depth = std::max(state.depth, states_[item.below].depth + open);
  }
  items_.insert(items_.end(), items.begin(), items.end());
  slots_[slot] = static_cast<StateId>(states_.size());
  states_.push_back(state);
  return slots_[slot];
}

void States::grow() {
  slots_.assign(slots_.size() * 2, kNone);
  const size_t mask = slots_.size() - 1;
  for (StateId id = 0; id < states_.size(); ++id) {
    size_t slot = hash_of(items(id), states_[id].end) & mask;
    while (slots_[slot] != kNone) slot = (slot + 1) & mask;
    slots_[slot] = id;
  }
}

StateId States::push(uint32_t node, uint64_t arg, StateId below) {
  const Item item{node, below, arg};
  return intern({&item, 1}, false);
}

// All stacks of both. The recursion follows stacks, whose depth the grammar limits.
StateId States::unite(StateId a, StateId b) {
  if (a == b || b == kDead) return a;
  if (a == kDead) return b;
  const uint64_t key = uint64_t{std::min(a, b)} << 32 | std::max(a, b);
  if (auto known = unions_.find(key); known != unions_.end()) return known->second;
  std::vector<Item> out;
  size_t i = 0;
  size_t j = 0;
  const State sa = states_[a];
  const State sb = states_[b];
  while (i < sa.count || j < sb.count) {  // by index: items_ may move below
    if (j == sb.count || (i < sa.count && top_less(items_[sa.first + i], items_[sb.first + j]))) {
      out.push_back(items_[sa.first + i++]);
    } else if (i == sa.count || top_less(items_[sb.first + j], items_[sa.first + i])) {
      out.push_back(items_[sb.first + j++]);
    } else {
      Item item = items_[sa.first + i++];
      const StateId other = items_[sb.first + j++].below;
      item.below = unite(item.below, other);
      out.push_back(item);
    }
  }
  return unions_[key] = intern(out, sa.end || sb.end);
}

// Expands `work` until only items remain that wait for a byte or a token, and numbers the result.
StateId States::settle(std::vector<Item>& work, bool end) {
  std::vector<Item> waiting;
  Seen seen;
  while (!work.empty() && waiting.size() < kMaxItems) {
    const Item item = work.back();
    work.pop_back();
    if (seen.add(item) && expand(item, work, end)) waiting.push_back(item);
  }
  work.clear();
  std::sort(waiting.begin(), waiting.end(), top_less);
  size_t kept = 0;
  for (const Item& item : waiting) {
    if (kept > 0 && same_top(waiting[kept - 1], item)) {
      waiting[kept - 1].below = unite(waiting[kept - 1].below, item.below);
    } else {
      waiting[kept++] = item;
    }
  }
  return intern({waiting.data(), kept}, end);
}

StateId States::start() {
  std::vector<Item> work;
  if (fits(graph_.root, kEnd)) work.push_back({graph_.root, kEnd, 0});
  return settle(work, false);
}

StateId States::after_token(StateId state, int32_t token) {
  std::vector<Item> work;
  bool end = false;
  for (const Item item : std::vector<Item>(items(state).begin(), items(state).end())) {
    const Node& node = graph_.at(item.node);
    if (node.kind == NodeKind::token && node.token == token) pop(item.below, work, end);
  }
  return settle(work, end);
}

const States::Row& States::row(StateId state) {
  if (states_[state].row == kNone) {
    auto filled = std::make_unique<Row>();
    filled->fill(kDead);
    fill(state, *filled);
    states_[state].row = static_cast<uint32_t>(rows_.size());
    rows_.push_back(std::move(filled));
  }
  return *rows_[states_[state].row];
}

void States::fill(StateId state, Row& row) {
  const std::vector<Item> from(items(state).begin(), items(state).end());
  std::vector<Move> all;
  for (uint32_t i = 0; i < from.size(); ++i) moves(from[i], i, all);
  if (from.size() == 1) {  // disjoint ranges already
    std::vector<std::pair<uint64_t, StateId>> done;
    for (const Move& move : all) {
      auto known = std::find_if(done.begin(), done.end(), [&](const auto& d) { return d.first == move.arg; });
      if (known == done.end()) known = done.insert(done.end(), {move.arg, target({&move, 1}, from)});
      std::fill(row.begin() + move.lo, row.begin() + move.hi + 1, known->second);
    }
    return;
  }
  std::vector<unsigned> cuts;
  for (const Move& move : all) {
    cuts.push_back(move.lo);
    cuts.push_back(move.hi + 1u);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Move> here;
  std::vector<Move> previous;
  StateId to = kDead;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    here.clear();
    for (const Move& move : all) {
      if (move.lo <= cuts[c] && cuts[c] <= move.hi) here.push_back(move);
    }
    if (here.empty()) continue;
    const bool repeated =
        std::equal(here.begin(), here.end(), previous.begin(), previous.end(),
                   [](const Move& a, const Move& b) { return a.source == b.source && a.arg == b.arg; });
    if (!repeated) to = target(here, from);
    std::fill(row.begin() + cuts[c], row.begin() + cuts[c + 1], to);
    previous = here;
  }
}

StateId States::target(std::span<const Move> moves, std::span<const Item> from) {
  std::vector<Item> work;
  for (const Move& move : moves) {
    Item item = from[move.source];
    item.arg = move.arg;
    work.push_back(item);
  }
  return settle(work, false);
}

StateId States::nearby(StateId state, uint32_t horizon) {
  if (states_[state].near != kNone) return states_[state].near;
  std::vector<Item> out(items(state).begin(), items(state).end());
  for (Item& item : out) {
    const Node& node = graph_.at(item.node);
    const bool counted = node.kind == NodeKind::counted;
    if (counted || node.kind == NodeKind::items) {
      const unsigned shift = counted ? 16 : 1;
      const uint64_t count = item.arg >> shift;
      // Items that differ from those after them; and the first one, which no comma precedes, is never like
      // the second.
      const uint64_t fixed = counted ? 0 : std::max<uint64_t>(node.children.size(), count > 0 ? 1 : 0);
      uint64_t seen = count;
      if (count >= fixed && count + horizon < node.min) {
        seen = fixed;
      } else if (count >= fixed && count >= node.min &&
                 (node.max == kUnlimited || node.max - count > horizon)) {
        seen = std::max(node.min, fixed);
      }
      item.arg = seen << shift | (item.arg & ((uint64_t{1} << shift) - 1));
    }
    item.below = nearby(item.below, horizon);
  }
  std::sort(out.begin(), out.end(), top_less);
  StateId near = intern({}, states_[state].end);
  for (const Item& item : out) near = unite(near, intern({&item, 1}, false));
  states_[state].near = near;
  states_[near].near = near;
  return near;
}

StateId States::import(const States& other, StateId id, std::unordered_map<StateId, StateId>& done) {
  if (id == kEnd || id == kDead) return id;
  if (auto known = done.find(id); known != done.end()) return known->second;
  std::vector<Item> out(other.items(id).begin(), other.items(id).end());
  for (Item& item : out) item.below = import(other, item.below, done);
  return done[id] = intern(out, other.complete(id));
}

}  // namespace godwit::grammar
