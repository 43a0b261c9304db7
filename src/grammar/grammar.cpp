#include "grammar/grammar.h"

#include <algorithm>

namespace godwit::grammar {
namespace {

// Of one Memory: about 35 MB at 154,880 ids.
constexpr size_t kMaxStates = 200'000;
constexpr size_t kMaxRows = 16'384;  // 1 KiB each
constexpr size_t kMaxMasks = 512;    // vocab_size / 8 bytes each

void allow(std::vector<uint32_t>& mask, std::span<const int32_t> ids) {
  for (int32_t id : ids) mask[static_cast<uint32_t>(id) / 32] |= 1u << (static_cast<uint32_t>(id) % 32);
}

bool covers(const States::Room& room, const TokenIndex::Subtree& subtree) {
  return (subtree.ascii[0] & ~room.loop.ascii[0]) == 0 && (subtree.ascii[1] & ~room.loop.ascii[1]) == 0 &&
         (!subtree.multibyte || room.loop.multibyte) && subtree.characters <= room.room;
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
  if (states.complete(state)) allow(mask, index_->end_ids());
  for (const Item& item : states.items(state)) {
    const Node& node = graph_.at(item.node);
    if (node.kind == NodeKind::token) allow(mask, {&node.token, 1});
  }
  const auto nodes = index_->nodes();
  const auto order = index_->order();
  std::vector<StateId> path(index_->longest() + 1, States::kDead);  // by depth
  std::vector<const States::Row*> rows(path.size(), nullptr);
  std::vector<std::vector<States::Room>> rooms(path.size());
  path[0] = state;
  auto enter = [&](size_t depth) {
    rows[depth] = &states.row(path[depth]);
    states.rooms(path[depth], rooms[depth]);
  };
  enter(0);
  const auto end = static_cast<uint32_t>(nodes.size() - 1);
  for (uint32_t i = 1; i < end;) {
    const TokenIndex::Node& node = nodes[i];
    const size_t depth = node.depth;
    const StateId to = (*rows[depth - 1])[node.byte];
    if (to == States::kDead) {
      i = node.end;
      continue;
    }
    if (node.end == i + 1) {
      allow(mask, order.subspan(node.tokens, node.own_end - node.tokens));
      ++i;
      continue;
    }
    if (path[depth] != to || rows[depth] == nullptr) {
      path[depth] = to;
      enter(depth);
    }
    const auto& room = rooms[depth];
    if (node.subtree != 0 && std::any_of(room.begin(), room.end(), [&](const States::Room& r) {
          return covers(r, index_->subtree(node.subtree));
        })) {
      allow(mask, order.subspan(node.tokens, nodes[node.end].tokens - node.tokens));
      i = node.end;
      continue;
    }
    allow(mask, order.subspan(node.tokens, node.own_end - node.tokens));
    ++i;
  }
}

}  // namespace godwit::grammar
