#include "grammar/grammar.h"

#include <algorithm>

namespace godwit::grammar {
namespace {

// Of one Memory: about 35 MB at 154,880 ids.
constexpr size_t kMaxStates = 200'000;
constexpr size_t kMaxRows = 16'384;  // 1 KiB each
constexpr size_t kMaxMasks = 512;    // vocab_size / 8 bytes each

// Of one walk, in about 10 ns; what passes it is tens of milliseconds of one absurd state. Counted by what
// the grammar says, not by what is remembered already, so that a mask never depends on earlier requests.
constexpr size_t kMaxWalk = 1'500'000;
constexpr size_t kStateCost = 100;  // of a state's moves, for each of its items

void allow(std::vector<uint32_t>& mask, int32_t id) {
  mask[static_cast<uint32_t>(id) / 32] |= 1u << (static_cast<uint32_t>(id) % 32);
}

// Collects ranges of the tokens in the order of their bytes, ascending, and turns them into bits, working
// through the allowed or the refused tokens, whichever are fewer.
class Ranges {
 public:
  void add(uint32_t begin, uint32_t end) {
    if (begin == end) return;
    if (!ranges_.empty() && ranges_.back().second == begin) {
      ranges_.back().second = end;
    } else {
      ranges_.emplace_back(begin, end);
    }
    count_ += end - begin;
  }

  void write(const TokenIndex& index, std::vector<uint32_t>& mask) {
    const auto order = index.order();
    if (count_ * 2 <= order.size()) {
      for (const auto& [begin, end] : ranges_) {
        for (uint32_t i = begin; i < end; ++i) allow(mask, order[i]);
      }
      return;
    }
    std::copy(index.text_mask().begin(), index.text_mask().end(), mask.begin());
    uint32_t refused = 0;
    ranges_.emplace_back(static_cast<uint32_t>(order.size()), 0);
    for (const auto& [begin, end] : ranges_) {
      for (; refused < begin; ++refused) {
        const auto id = static_cast<uint32_t>(order[refused]);
        mask[id / 32] &= ~(1u << (id % 32));
      }
      refused = end;
    }
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
  size_t count_ = 0;
};

bool fits(const std::vector<States::Room>& rooms, const TokenIndex::Subtree& below) {
  return std::any_of(rooms.begin(), rooms.end(), [&](const States::Room& room) {
    return below.characters <= room.room && room.safe.covers(below.occur);
  });
}

}  // namespace

bool Grammar::Memory::full() const {
  return states.size() > kMaxStates || states.rows() > kMaxRows || masks.size() > kMaxMasks;
}

Grammar::Grammar(Graph graph, std::shared_ptr<const TokenIndex> index)
    : graph_(std::move(graph)),
      index_(std::move(index)),
      memory_(std::make_shared<Memory>(graph_, index_->mask_words())) {
  States& states = memory_->states;
  const int32_t open = index_->control().tool_call_open;
  starts_with_call_ = open >= 0 && states.after_token(states.start(), open) != States::kDead;
}

std::span<const uint32_t> Grammar::mask(Memory& memory, StateId state) const {
  const StateId near = memory.states.nearby(state, index_->longest());
  if (memory.mask_of.size() <= near) memory.mask_of.resize(memory.states.size(), kNone);
  if (memory.mask_of[near] == kNone) {
    memory.mask_of[near] = static_cast<uint32_t>(memory.masks.size());
    walk(memory.states, near, memory.masks.emplace_back(memory.words, 0));
  }
  return memory.masks[memory.mask_of[near]];
}

// Depth first over the token trie with the grammar's state beside it; a subtree is left where no stack goes
// on, and taken whole where its characters keep the state.
void Grammar::walk(States& states, StateId state, std::vector<uint32_t>& mask) const {
  struct Level {
    uint32_t next = 0;  // the children still to visit
    uint32_t end = 0;
    StateId state = States::kDead;  // of their parent
    const States::Row* row = nullptr;
    std::vector<States::Room> rooms;  // at `state`
  };
  Ranges ranges;
  const auto nodes = index_->nodes();
  std::vector<Level> levels(index_->longest() + 1);
  levels[0].end = 1 + nodes[0].children;
  levels[0].next = 1;
  levels[0].row = &states.row(state);
  size_t work = 0;
  for (size_t depth = 0;;) {
    Level& level = levels[depth];
    if (level.next == level.end) {
      if (depth == 0) break;
      --depth;
      continue;
    }
    const TokenIndex::Node& node = nodes[level.next++];
    const StateId to = (*level.row)[node.byte];
    if (to == States::kDead) continue;
    if (node.children == 0) {
      ranges.add(node.tokens, node.end);
      continue;
    }
    Level& below = levels[depth + 1];
    work += 1 + below.rooms.size();
    if (work > kMaxWalk) {  // longer tokens are left out; the single bytes still lead everywhere
      ranges.add(node.tokens, node.own_end);
      continue;
    }
    if (below.state != to) {
      below.state = to;
      below.row = nullptr;
      states.rooms(to, below.rooms);
    }
    if (node.subtree != 0 && fits(below.rooms, index_->subtree(node.subtree))) {
      ranges.add(node.tokens, node.end);
      continue;
    }
    ranges.add(node.tokens, node.own_end);
    if (below.row == nullptr) {
      below.row = &states.row(to);
      work += kStateCost * states.items(to).size();
    }
    below.next = node.first;
    below.end = node.first + node.children;
    ++depth;
  }
  ranges.write(*index_, mask);
  if (states.complete(state)) {
    for (int32_t id : index_->end_ids()) allow(mask, id);
  }
  for (const Item& item : states.items(state)) {
    const Node& node = graph_.at(item.node);
    if (node.kind == NodeKind::token) allow(mask, node.token);
  }
}

}  // namespace godwit::grammar
