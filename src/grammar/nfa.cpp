#include "grammar/nfa.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>

#include "tokenizer/utf8.h"

namespace godwit::grammar {
namespace {

std::string encoded(uint32_t c) {
  std::string out;
  tokenizer::append_utf8(out, c);
  return out;
}

const CodePointSet& must_escape() {
  static const CodePointSet set{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  return set;
}

}  // namespace

uint32_t Nfa::add_state() {
  states_.emplace_back();
  return static_cast<uint32_t>(states_.size() - 1);
}

void Nfa::text(uint32_t from, std::string_view bytes, uint32_t to) {
  if (bytes.empty()) return epsilon(from, to);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint32_t next = i + 1 == bytes.size() ? to : add_state();
    edge(from, byte, byte, next);
    from = next;
  }
}

// Splits [lo, hi] until every part is a product of byte ranges.
void Nfa::utf8(uint32_t from, uint32_t lo, uint32_t hi, uint32_t to) {
  for (uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (lo <= last && last < hi) {
      utf8(from, lo, last, to);
      return utf8(from, last + 1, hi, to);
    }
  }
  const std::string first = encoded(lo);
  for (size_t i = 1; i < first.size(); ++i) {
    const uint32_t low_bits = (1u << (6 * i)) - 1;
    if ((lo & ~low_bits) == (hi & ~low_bits)) continue;
    if ((lo & low_bits) != 0) {
      utf8(from, lo, lo | low_bits, to);
      return utf8(from, (lo | low_bits) + 1, hi, to);
    }
    if ((hi & low_bits) != low_bits) {
      utf8(from, lo, (hi & ~low_bits) - 1, to);
      return utf8(from, hi & ~low_bits, hi, to);
    }
  }
  const std::string last = encoded(hi);
  for (size_t i = 0; i < first.size(); ++i) {
    const uint32_t next = i + 1 == first.size() ? to : add_state();
    edge(from, static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]), next);
    from = next;
  }
}

void Nfa::character(uint32_t from, const CodePointSet& set, Spelling spelling, uint32_t to) {
  CodePointSet plain = set;
  if (spelling != Spelling::plain) {
    CodePointSet rest = set.complement();
    rest.add(must_escape());
    plain = rest.complement();
  }
  for (const auto& [lo, hi] : plain.ranges()) utf8(from, lo, hi, to);
  if (spelling == Spelling::json_any) return any_escape(from, to);
  if (spelling == Spelling::plain) return;
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  for (size_t i = 0; i < kNamed.size(); ++i) {
    if (set.contains(static_cast<uint8_t>(kNamed[i]))) text(from, std::string{'\\', kNames[i]}, to);
  }
  for (uint32_t c = 0; c < 0x20; ++c) {
    if (set.contains(c) && kNamed.find(static_cast<char>(c)) == kNamed.npos)
      text(from, fmt::format("\\u{:04x}", c), to);
  }
}

void Nfa::any_escape(uint32_t from, uint32_t to) {
  const uint32_t escape = add_state();
  edge(from, '\\', '\\', escape);
  for (char c : std::string_view("\"\\/bfnrt"))
    edge(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  auto hex = [this](uint32_t a, unsigned lo, unsigned hi, uint32_t b) {  // digits lo..hi, both cases
    for (unsigned d = lo; d <= hi; ++d) {
      const auto digit = static_cast<uint8_t>("0123456789abcdef"[d]);
      edge(a, digit, digit, b);
      if (d >= 10) edge(a, digit - 32, digit - 32, b);
    }
  };
  auto hex_tail = [&](uint32_t a, unsigned digits, uint32_t b) {
    for (; digits > 1; --digits) {
      const uint32_t next = add_state();
      hex(a, 0, 15, next);
      a = next;
    }
    hex(a, 0, 15, b);
  };
  const uint32_t unit = add_state();
  edge(escape, 'u', 'u', unit);
  const uint32_t after_first = add_state();  // a first digit that begins no surrogate
  hex(unit, 0, 12, after_first);
  hex(unit, 14, 15, after_first);
  hex_tail(after_first, 3, to);
  const uint32_t after_d = add_state();
  hex(unit, 13, 13, after_d);
  const uint32_t two_left = add_state();
  hex(after_d, 0, 7, two_left);
  hex_tail(two_left, 2, to);
  const uint32_t high = add_state();
  hex(after_d, 8, 11, high);
  const uint32_t pair = add_state();
  hex_tail(high, 2, pair);
  const uint32_t low = add_state();
  text(pair, "\\u", low);
  const uint32_t low_d = add_state();
  hex(low, 13, 13, low_d);
  const uint32_t low_two = add_state();
  hex(low_d, 12, 15, low_two);
  hex_tail(low_two, 2, to);
}

std::vector<uint32_t> Nfa::closure(std::vector<uint32_t> set, std::vector<uint32_t>& marks, uint32_t mark,
                                   size_t& work) const {
  std::vector<uint32_t> out;
  while (!set.empty()) {
    const uint32_t s = set.back();
    set.pop_back();
    ++work;
    if (marks[s] == mark) continue;
    marks[s] = mark;
    out.push_back(s);
    set.insert(set.end(), states_[s].epsilon.begin(), states_[s].epsilon.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<ByteDfa> Nfa::determinize(uint32_t start, uint32_t accept, const DfaLimits& limits) const {
  if (states_.size() > limits.nfa_states)
    return make_error(ErrorCode::invalid_request, "", "it needs {} automaton states, the limit is {}",
                      states_.size(), limits.nfa_states);
  const size_t most = limits.budget != nullptr ? std::min(limits.work, *limits.budget) : limits.work;
  std::map<std::vector<uint32_t>, uint32_t> ids;
  std::vector<const std::vector<uint32_t>*> sets;
  std::vector<ByteDfa::State> states;
  std::vector<uint32_t> marks(states_.size(), 0);
  uint32_t mark = 0;
  size_t work = 0;
  auto id_of = [&](std::vector<uint32_t> set) {
    auto [id, added] =
        ids.try_emplace(closure(std::move(set), marks, ++mark, work), static_cast<uint32_t>(sets.size()));
    if (added) sets.push_back(&id->first);
    return id->second;
  };
  id_of({start});
  std::vector<ByteEdge> edges;
  std::vector<unsigned> cuts;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets.size() > limits.states || work > most) {
      if (limits.budget != nullptr) *limits.budget -= std::min(work, *limits.budget);
      return make_error(ErrorCode::invalid_request, "",
                        "its deterministic automaton passes the limit of {} states or {} steps",
                        limits.states, most);
    }
    edges.clear();
    cuts.clear();
    ByteDfa::State& state = states.emplace_back();
    for (uint32_t s : *sets[i]) {
      state.accept |= s == accept;
      for (const ByteEdge& edge : states_[s].edges) {
        edges.push_back(edge);
        cuts.push_back(edge.lo);
        cuts.push_back(edge.hi + 1u);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<uint32_t> targets;
      for (const ByteEdge& edge : edges) {
        if (edge.lo <= cuts[c] && cuts[c] <= edge.hi) targets.push_back(edge.target);
      }
      work += edges.size() / 4;
      if (targets.empty()) continue;
      const uint32_t target = id_of(std::move(targets));
      auto& out = states[i].edges;
      const auto hi = static_cast<uint8_t>(cuts[c + 1] - 1);
      if (!out.empty() && out.back().target == target && out.back().hi + 1u == cuts[c]) {
        out.back().hi = hi;
      } else {
        out.push_back({static_cast<uint8_t>(cuts[c]), hi, target});
      }
    }
  }
  // Finding the safe sets takes about this much for each state.
  if (limits.budget != nullptr) *limits.budget -= std::min(work + 200 * states.size(), *limits.budget);
  auto dfa = ByteDfa::make(std::move(states));
  if (!dfa) return make_error(ErrorCode::invalid_request, "", "nothing matches it");
  return *std::move(dfa);
}

}  // namespace godwit::grammar
