// What each kind of node stands for, and which bytes it takes (graph.h).
#include "base/assert.h"
#include "grammar/state.h"

namespace godwit::grammar {
namespace {

constexpr uint64_t kStateMask = 0xFFFF;  // of a counted node's arg

uint64_t counted_arg(uint64_t count, uint32_t state) {
  return count << 16 | state;
}

}  // namespace

bool States::fits(uint32_t node, StateId below) const {
  const uint32_t height = graph_.at(node).height;
  return height != kNone && states_[below].depth + height <= graph_.limits().depth;
}

void States::pop(StateId below, std::vector<Item>& work, bool& end) {
  end |= states_[below].end;
  const auto tops = items(below);
  work.insert(work.end(), tops.begin(), tops.end());
}

bool States::expand(const Item& item, std::vector<Item>& work, bool& end) {
  const Node& node = graph_.at(item.node);
  switch (node.kind) {
    case NodeKind::token:
      return true;
    case NodeKind::dfa: {
      const ByteDfa::State& state = graph_.dfa(node.dfa).at(static_cast<uint32_t>(item.arg));
      if (state.accept) pop(item.below, work, end);
      return !state.edges.empty();
    }
    case NodeKind::counted: {
      const auto state = static_cast<uint32_t>(item.arg & kStateMask);
      const uint64_t count = item.arg >> 16;
      const ByteDfa::State& at = graph_.dfa(node.dfa).at(state);
      if (at.accept && (state != node.body || count >= node.min)) pop(item.below, work, end);
      return !at.edges.empty() && !(at.accept && state == node.body && count == node.max);
    }
    case NodeKind::sequence: {
      if (item.arg == node.children.size()) {
        pop(item.below, work, end);
      } else if (const uint32_t child = node.children[item.arg]; item.arg + 1 == node.children.size()) {
        if (fits(child, item.below)) work.push_back({child, item.below, 0});
      } else if (fits(child, item.below)) {
        work.push_back({child, push(item.node, item.arg + 1, item.below), 0});
      }
      return false;
    }
    case NodeKind::choice:
      for (uint32_t child : node.children) {
        if (fits(child, item.below)) work.push_back({child, item.below, 0});
      }
      return false;
    case NodeKind::members:
      expand_members(item, node, work);
      return false;
    case NodeKind::items:
      expand_items(item, node, work);
      return false;
    case NodeKind::arguments:
      expand_arguments(item, node, work, end);
      return false;
  }
  return false;
}

void States::expand_members(const Item& item, const Node& node, std::vector<Item>& work) {
  const Graph::Common& common = graph_.common();
  const uint64_t next = item.arg >> 2;
  const bool after_comma = (item.arg & 2) != 0;
  const bool not_first = (item.arg & 1) != 0;
  const size_t count = node.children.size();
  // A value is one container deeper than the object is.
  const StateId open = push(item.node, item.arg, item.below);
  bool closable = true;
  bool continues = false;
  for (uint64_t i = next; i < count && closable; ++i) {  // up to the first required one
    if (fits(node.children[i], open)) {
      continues = true;
      if (after_comma || !not_first)
        work.push_back({node.children[i], push(item.node, (i + 1) << 2 | 1, item.below), 0});
    }
    closable = !node.required[i];
  }
  if (closable && node.rest != kNone && fits(node.rest, open)) {
    continues = true;
    if (after_comma || !not_first)
      work.push_back({node.rest, push(item.node, count << 2 | 1, item.below), 0});
  }
  if (after_comma) return;
  if (closable) work.push_back({not_first ? common.gap_close_object : common.close_object, item.below, 0});
  if (not_first && continues) work.push_back({common.comma, push(item.node, item.arg | 2, item.below), 0});
}

void States::expand_items(const Item& item, const Node& node, std::vector<Item>& work) {
  const Graph::Common& common = graph_.common();
  const uint64_t done = item.arg >> 1;
  const bool after_comma = (item.arg & 1) != 0;
  const size_t fixed = node.children.size();
  const uint32_t value = done >= node.max ? kNone : done < fixed ? node.children[done] : node.rest;
  const bool continues = value != kNone && fits(value, push(item.node, item.arg, item.below));
  if (continues && (after_comma || done == 0)) {
    // Beyond what any limit looks at, items need not be told apart.
    uint64_t next = done + 1;
    if (node.max == kUnlimited && next > node.min && next > fixed) next = done;
    if (next == 0) next = 1;
    work.push_back({value, push(item.node, next << 1, item.below), 0});
  }
  if (after_comma) return;
  if (done >= node.min)
    work.push_back({done > 0 ? common.gap_close_array : common.close_array, item.below, 0});
  if (done > 0 && continues) work.push_back({common.comma, push(item.node, item.arg | 1, item.below), 0});
}

void States::expand_arguments(const Item& item, const Node& node, std::vector<Item>& work, bool& end) {
  bool closable = true;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if ((item.arg & bit) != 0) continue;
    closable = closable && !node.required[i];
    if (fits(node.children[i], item.below))
      work.push_back({node.children[i], push(item.node, item.arg | bit, item.below), 0});
  }
  if (node.rest != kNone && fits(node.rest, item.below))
    work.push_back({node.rest, push(item.node, item.arg, item.below), 0});
  if (closable) pop(item.below, work, end);
}

void States::moves(const Item& item, uint32_t source, std::vector<Move>& out) const {
  const Node& node = graph_.at(item.node);
  if (node.kind == NodeKind::token) return;
  const ByteDfa& dfa = graph_.dfa(node.dfa);
  if (node.kind == NodeKind::dfa) {
    for (const ByteEdge& edge : dfa.at(static_cast<uint32_t>(item.arg)).edges)
      out.push_back({edge.lo, edge.hi, source, edge.target});
    return;
  }
  GODWIT_ASSERT(node.kind == NodeKind::counted);
  const auto state = static_cast<uint32_t>(item.arg & kStateMask);
  const uint64_t count = item.arg >> 16;
  const bool opening = state == 0 && node.body != 0;
  for (const ByteEdge& edge : dfa.at(state).edges) {
    const bool closes = state == node.body && edge.target != node.body && dfa.at(edge.target).accept;
    if (state == node.body && (closes ? count < node.min : count >= node.max)) continue;
    const bool counts = edge.target == node.body && !opening;
    uint64_t next = counts ? count + 1 : count;
    if (node.max == kUnlimited && next > node.min) next = node.min;  // only the minimum mattered
    out.push_back({edge.lo, edge.hi, source, counted_arg(next, edge.target)});
  }
}

void States::rooms(StateId state, std::vector<Room>& out) const {
  out.clear();
  for (const Item& item : items(state)) {
    const Node& node = graph_.at(item.node);
    if (node.kind == NodeKind::token) continue;
    const bool counted = node.kind == NodeKind::counted;
    const auto at = static_cast<uint32_t>(counted ? item.arg & kStateMask : item.arg);
    const SafeSet& safe = graph_.dfa(node.dfa).at(at).safe;
    if (safe.empty()) continue;
    const uint64_t room = counted && node.max != kUnlimited ? node.max - (item.arg >> 16) : kUnlimited;
    if (!counted || at == node.body) out.push_back({safe, room});
  }
}

}  // namespace godwit::grammar
