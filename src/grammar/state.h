// The states of a grammar while text is matched: sets of stacks, shared and interned.
//
// A stack is what remains to be matched, innermost first. A state holds all stacks that the text so far
// allows, as a map from the item on top to the state below it; stacks with equal tops share one entry, so
// ambiguity costs the number of different tops, not of stacks. States are numbered and never change: moving
// back is remembering a number.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/graph.h"

namespace godwit::grammar {

using StateId = uint32_t;

struct Item {
  uint32_t node = 0;
  StateId below = 0;
  uint64_t arg = 0;  // by the node's kind, see graph.h
};

class States {
 public:
  // Alternatives followed at the same time; more are dropped, which narrows an absurd grammar and never
  // blocks it: each one kept can be finished by itself.
  static constexpr size_t kMaxItems = 512;
  static constexpr StateId kEnd = 0;   // the empty stack
  static constexpr StateId kDead = 1;  // no stack

  using Row = std::array<StateId, 256>;

  explicit States(const Graph& graph);

  StateId start();
  // The state after one byte; kDead when no stack takes it. `state` comes from start, next or after_token.
  StateId next(StateId state, uint8_t byte) { return row(state)[byte]; }
  const Row& row(StateId state);
  StateId after_token(StateId state, int32_t token);
  // Whether the text may end here.
  bool complete(StateId state) const { return states_[state].end; }
  std::span<const Item> items(StateId state) const {
    return {items_.data() + states_[state].first, states_[state].count};
  }
  // The state in which all counters are replaced by ones that look the same for the next `horizon` bytes, so
  // that states which differ only in far-away limits share a mask.
  StateId nearby(StateId state, uint32_t horizon);
  // Characters after which no state fails, whatever their order; in a string with a length limit up to `room`
  // of them.
  struct Room {
    SafeSet safe;
    uint64_t room;
  };
  void rooms(StateId state, std::vector<Room>& out) const;

  // `id` of `other`, numbered here. `done`: the numbers found so far.
  StateId import(const States& other, StateId id, std::unordered_map<StateId, StateId>& done);

  size_t size() const { return states_.size(); }
  size_t rows() const { return rows_.size(); }

 private:
  struct State {
    uint32_t first = 0;  // in items_
    uint32_t count = 0;
    uint32_t row = kNone;
    uint32_t depth = 0;  // containers that are open in the deepest stack
    StateId near = kNone;
    bool end = false;  // one of the stacks is empty
  };
  struct Move {
    uint8_t lo, hi;
    uint32_t source;  // index into the state's items
    uint64_t arg;     // of the item after it
  };
  class Seen;

  StateId intern(std::span<const Item> items, bool end);
  StateId push(uint32_t node, uint64_t arg, StateId below);
  StateId unite(StateId a, StateId b);
  StateId settle(std::vector<Item>& work, bool end);
  // Appends to `work` what the item stands for; returns whether it is itself waiting for a byte or a token.
  bool expand(const Item& item, std::vector<Item>& work, bool& end);
  void pop(StateId below, std::vector<Item>& work, bool& end);
  void expand_members(const Item& item, const Node& node, std::vector<Item>& work);
  void expand_items(const Item& item, const Node& node, std::vector<Item>& work);
  void expand_arguments(const Item& item, const Node& node, std::vector<Item>& work, bool& end);
  bool fits(uint32_t node, StateId below) const;
  void moves(const Item& item, uint32_t source, std::vector<Move>& out) const;
  void fill(StateId state, Row& row);
  StateId target(std::span<const Move> moves, std::span<const Item> from);
  void grow();

  const Graph& graph_;
  std::vector<State> states_;
  std::vector<Item> items_;
  std::vector<StateId> slots_;  // open addressing over states_, a power of two, at most half full
  std::vector<std::unique_ptr<Row>> rows_;
  std::unordered_map<uint64_t, StateId> unions_;  // a << 32 | b -> unite(a, b)
};

}  // namespace godwit::grammar
