#include "grammar/byte_dfa.h"

#include <algorithm>
#include <map>

#include "base/assert.h"

namespace godwit::grammar {
namespace {

using States = std::vector<ByteDfa::State>;

// Appends an edge for one byte, joining it to the last when they continue each other.
void append_byte(std::vector<ByteEdge>& edges, unsigned byte, uint32_t target) {
  if (!edges.empty() && edges.back().target == target && edges.back().hi + 1u == byte) {
    edges.back().hi = static_cast<uint8_t>(byte);
  } else {
    edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), target});
  }
}

struct Trie {
  struct Node {
    std::map<uint8_t, uint32_t> children;
    bool end = false;
  };
  std::vector<Node> nodes{1};

  explicit Trie(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      uint32_t at = 0;
      for (char c : text) {
        auto [child, added] =
            nodes[at].children.try_emplace(static_cast<uint8_t>(c), static_cast<uint32_t>(nodes.size()));
        at = child->second;
        if (added) nodes.emplace_back();
      }
      nodes[at].end = true;
    }
  }
};

}  // namespace

std::optional<ByteDfa> ByteDfa::make(States states) {
  std::vector<std::vector<uint32_t>> sources(states.size());
  std::vector<uint32_t> queue;
  std::vector<char> live(states.size(), 0);
  for (uint32_t s = 0; s < states.size(); ++s) {
    for (const ByteEdge& edge : states[s].edges) sources[edge.target].push_back(s);
    if (states[s].accept) live[s] = 1, queue.push_back(s);
  }
  while (!queue.empty()) {
    const uint32_t target = queue.back();
    queue.pop_back();
    for (uint32_t s : sources[target]) {
      if (!live[s]) live[s] = 1, queue.push_back(s);
    }
  }
  if (states.empty() || !live[0]) return std::nullopt;
  std::vector<uint32_t> renamed(states.size(), kNone);
  ByteDfa dfa;
  for (uint32_t s = 0; s < states.size(); ++s) {
    if (live[s]) renamed[s] = dfa.size(), dfa.states_.push_back(std::move(states[s]));
  }
  for (State& state : dfa.states_) {
    std::erase_if(state.edges, [&](const ByteEdge& edge) { return !live[edge.target]; });
    for (ByteEdge& edge : state.edges) edge.target = renamed[edge.target];
  }
  dfa.find_safe_sets();
  return dfa;
}

ByteDfa ByteDfa::literals(const std::vector<std::string>& texts) {
  GODWIT_ASSERT(!texts.empty());
  const Trie trie(texts);
  States states(trie.nodes.size());
  for (size_t i = 0; i < states.size(); ++i) {
    states[i].accept = trie.nodes[i].end;
    for (const auto& [byte, child] : trie.nodes[i].children) append_byte(states[i].edges, byte, child);
  }
  return *make(std::move(states));
}

uint32_t ByteDfa::next(uint32_t state, uint8_t byte) const {
  const auto& edges = states_[state].edges;
  auto edge = std::upper_bound(edges.begin(), edges.end(), byte,
                               [](uint8_t b, const ByteEdge& e) { return b < e.lo; });
  if (edge == edges.begin() || (--edge)->hi < byte) return kNone;
  return edge->target;
}

std::optional<ByteDfa> intersect(const ByteDfa& a, const ByteDfa& b, size_t limit, bool& too_large) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids{{{0, 0}, 0}};
  std::vector<std::pair<uint32_t, uint32_t>> pairs{{0, 0}};
  States states;
  too_large = false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > limit) {
      too_large = true;
      return std::nullopt;
    }
    const auto [sa, sb] = pairs[i];
    ByteDfa::State state;
    state.accept = a.at(sa).accept && b.at(sb).accept;
    for (const ByteEdge& x : a.at(sa).edges) {
      for (const ByteEdge& y : b.at(sb).edges) {
        const uint8_t lo = std::max(x.lo, y.lo);
        const uint8_t hi = std::min(x.hi, y.hi);
        if (lo > hi) continue;
        auto [id, added] = ids.try_emplace({x.target, y.target}, static_cast<uint32_t>(pairs.size()));
        if (added) pairs.push_back(id->first);
        state.edges.push_back({lo, hi, id->second});
      }
    }
    states.push_back(std::move(state));
  }
  return ByteDfa::make(std::move(states));
}

ByteDfa without_literals(const ByteDfa& base, uint32_t body, const std::vector<std::string>& literals) {
  const Trie trie(literals);
  struct Place {
    uint32_t state;
    uint32_t node;  // in the trie; kNone: no longer a prefix of any literal
    auto operator<=>(const Place&) const = default;
  };
  std::map<Place, uint32_t> ids;
  std::vector<Place> places;
  auto id_of = [&](Place place) {
    auto [id, added] = ids.try_emplace(place, static_cast<uint32_t>(places.size()));
    if (added) places.push_back(place);
    return id->second;
  };
  id_of({0, 0});
  States states;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [at, node] = places[i];
    const bool in_body = body == 0 || at != 0;
    const bool literal = in_body && node != kNone && trie.nodes[node].end;
    ByteDfa::State state;
    state.accept = base.at(at).accept && !(literal && at == body);
    for (const ByteEdge& edge : base.at(at).edges) {
      if (node == kNone || !in_body) {
        state.edges.push_back({edge.lo, edge.hi, id_of({edge.target, in_body ? kNone : 0})});
        continue;
      }
      for (unsigned b = edge.lo; b <= edge.hi; ++b) {
        if (b == '\\') continue;
        const bool closes = at == body && base.at(edge.target).accept && edge.target != body;
        if (closes && literal) continue;
        const auto& children = trie.nodes[node].children;
        auto child = children.find(static_cast<uint8_t>(b));
        append_byte(state.edges, b,
                    id_of({edge.target, closes || child == children.end() ? kNone : child->second}));
      }
    }
    states.push_back(std::move(state));
  }
  auto dfa = ByteDfa::make(std::move(states));
  GODWIT_ASSERT(dfa.has_value());  // finitely many literals never exhaust the keys
  return *std::move(dfa);
}

}  // namespace godwit::grammar
